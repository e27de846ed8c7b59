package agent

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/inventory"
	"kamino.dev/kamino/agent/nodeapi"
	"kamino.dev/kamino/agent/platform"
)

const (
	// packagesAnnotation holds a packageList as JSON.
	packagesAnnotation = "kamino.dev/packages"
	// packagesMost bounds it, in bytes. All annotations of an object may have 256 KiB
	// (https://kubernetes.io/docs/reference/using-api/api-concepts/).
	packagesMost = 64 << 10
)

// packageList answers a run's order; kamino.PackageList is its reader.
type packageList struct {
	Run   string `json:"run"`
	Nonce string `json:"nonce"`
	inventory.Facts
	// List is base64 of gzip of the lines of inventory.Packages, each with its line feed.
	List []byte `json:"list"`
}

// runPackages prints the installed packages or, for a run, writes them on the Node.
func runPackages(ctx context.Context, e *env, args []string) error {
	f := e.flags("packages")
	root := f.String("host-root", "", "root `directory` of the host, seen from a pod; the same as --root")
	run := f.String("run", "", "`ID` of the run that asks")
	nonce := f.String("nonce", os.Getenv(nonceEnv), "`text` that the answer repeats, so that the run can match it to its request")
	node := f.String("donor", "", "`name` of this machine's Node, on which the packages are written; without it they are printed")
	if err := parse(f, args); err != nil {
		return err
	}
	e.root = cmp.Or(*root, e.root)
	d, _, err := e.open()
	if err != nil {
		return err
	}
	defer d.Close()
	if *node == "" {
		list, _, err := inventory.Packages(d)
		for _, line := range list {
			fmt.Fprintln(e.out, line)
		}
		return err
	}
	text, err := listPackages(d, *run, *nonce)
	if err != nil {
		return err
	}
	return annotate(ctx, d, *node, packagesAnnotation, text, "the packages")
}

// annotate writes an annotation on this machine's Node with the node's own credential.
func annotate(ctx context.Context, d *disk.Disk, node, annotation, text, what string) error {
	credentials, err := nodeapi.Load(d)
	if err != nil {
		return fmt.Errorf("without kubelet's credentials %s cannot be reported: %w", what, err)
	}
	client, err := credentials.Client(ctx, node, platform.Sleep)
	if err != nil {
		return err
	}
	return client.Annotate(ctx, map[string]string{annotation: text})
}

// pack compresses what goes into an annotation.
func pack(data []byte) ([]byte, error) {
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(data); err != nil {
		return nil, err
	}
	err = z.Close()
	return packed.Bytes(), err
}

// listPackages is the annotation's value.
func listPackages(d *disk.Disk, run, nonce string) (string, error) {
	list, facts, err := inventory.Packages(d)
	if err != nil {
		return "", err
	}
	if len(list) == 0 {
		return "", fmt.Errorf("neither dpkg nor rpm has a package installed below %s", d.Dir())
	}
	packed, err := pack([]byte(strings.Join(list, "\n") + "\n"))
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(packageList{Run: run, Nonce: nonce, Facts: facts, List: packed})
	if err == nil && len(text) > packagesMost {
		err = fmt.Errorf("the list of the %d packages has %d bytes, compressed; at most %d go into an annotation", len(list),
			len(text), packagesMost)
	}
	return string(text), err
}
