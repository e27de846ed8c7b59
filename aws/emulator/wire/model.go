// Package wire compares requests and replies of AWS's services with the service models that AWS
// publishes with botocore. Tests put [Checked] before the emulator: the models share nothing with
// it or with package aws.
package wire

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// debian is where python3-botocore of Debian has its data.
const debian = "/usr/lib/python3/dist-packages/botocore/data"

// ErrMissing means that no botocore is installed on this machine.
var ErrMissing = errors.New("the service models of botocore are not installed: apt-get install python3-botocore")

// services are the directories of the models.
var services = map[string]string{"ec2": "ec2/2016-11-15", "autoscaling": "autoscaling/2011-01-01",
	"ssm": "ssm/2014-11-06", "sts": "sts/2011-06-15"}

// service is a model, as far as it is compared with.
type service struct {
	Metadata   struct{ Protocol string }
	Operations map[string]struct {
		Input, Output struct{ Shape, ResultWrapper string }
	}
	Shapes map[string]*shape
}

type shape struct {
	Type      string
	Members   map[string]member
	Member    member // of a list
	Required  []string
	Enum      []string
	Min, Max  float64 // of a length or a number; 0: none
	Flattened bool
}

type member struct{ Shape, LocationName, QueryName string }

// Models reads the models, once in a process: those of the botocore that python3 imports, or
// Debian's.
var Models = sync.OnceValues(func() (map[string]*service, error) {
	dirs := []string{debian}
	if out, err := exec.Command("python3", "-c", "import botocore, os; print(os.path.join(os.path.dirname(botocore.__file__), 'data'))").Output(); err == nil {
		dirs = append([]string{strings.TrimSpace(string(out))}, dirs...)
	}
	for _, dir := range dirs {
		if _, err := os.Stat(dir); err == nil {
			return readModels(dir)
		}
	}
	return nil, ErrMissing
})

func readModels(dir string) (map[string]*service, error) {
	found := map[string]*service{}
	for name, path := range services {
		raw, err := readModel(filepath.Join(dir, path, "service-2.json"))
		if err != nil {
			return nil, err
		}
		found[name] = &service{}
		if err := json.Unmarshal(raw, found[name]); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// readModel reads a file that newer versions of botocore compress.
func readModel(path string) ([]byte, error) {
	raw, err := os.ReadFile(path)
	if !errors.Is(err, os.ErrNotExist) {
		return raw, err
	}
	f, err := os.Open(path + ".gz")
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	r, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}
