package nodeconfig

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"go.yaml.in/yaml/v3"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/userdata"
)

// Document is a configuration as it was found, with where.
type Document struct {
	Source string
	Data   []byte
}

// Hash identifies what the document configures: its fields without share, in whatever order and
// form they are written. Of a text that is not one document of fields it is the text's own.
func (d Document) Hash() string {
	data := d.Data
	var fields map[string]any
	dec := yaml.NewDecoder(bytes.NewReader(data))
	if dec.Decode(&fields) == nil && errors.Is(dec.Decode(new(any)), io.EOF) {
		delete(fields, "share")
		if canonical, err := json.Marshal(fields); err == nil { // keys are sorted
			data = canonical
		}
	}
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// ErrNone means that no source has a document.
var ErrNone = errors.New("no source has a NodeConfig")

// Find asks the sources in order and returns the first document: imds://userData, file:///PATH. A
// source that cannot be asked is an error, not an absence: the node must not take an older
// configuration because IMDS was slow.
func Find(ctx context.Context, sources []string, d *disk.Disk, userData func(context.Context) ([]byte, error)) (Document, error) {
	for _, s := range sources {
		var data []byte
		var err error
		switch name, isFile := strings.CutPrefix(s, "file://"); {
		case s == "imds://userData":
			data, err = userData(ctx)
		case isFile && strings.HasPrefix(name, "/"):
			if data, err = d.ReadFile(name, userdata.Most+1); errors.Is(err, fs.ErrNotExist) {
				data, err = nil, nil
			}
		default:
			err = errors.New("not imds://userData and not file:///PATH")
		}
		if err != nil {
			return Document{}, fmt.Errorf("ask source %s: %w", s, err)
		}
		if len(strings.TrimSpace(string(data))) > 0 {
			return Document{s, data}, nil
		}
	}
	return Document{}, fmt.Errorf("%w (asked %s)", ErrNone, strings.Join(sources, ", "))
}

// Changes are what Write changed.
type Changes struct {
	Units  []string // to be restarted, in this order, because one of their files changed
	Reload bool     // systemd must read its units again: it does not by itself
}

// Write puts the files on the disk. A file that is there already is not touched.
func Write(d *disk.Disk, files []File) (Changes, error) {
	var made Changes
	changed := map[string]bool{}
	for _, f := range files {
		former, err := d.ReadFile(f.Path, disk.Small)
		exists := err == nil
		if f.Data == nil && !exists || exists && f.Data != nil && string(former) == string(f.Data) {
			continue
		}
		if f.Data == nil {
			err = d.Remove(f.Path)
		} else {
			err = d.WriteFile(f.Path, f.Data, f.Mode&permissions(d, f.Path))
		}
		if err != nil {
			return made, err
		}
		if f.Unit != "" {
			changed[f.Unit] = true
		}
		made.Reload = made.Reload || f.Path == DropInPath || f.Path == CanaryPath
	}
	made.Units = inOrder(changed)
	return made, nil
}

// permissions returns the permission bits of a file, or all bits where there is no file. A new version
// of the file gets no others: who could not read it still cannot.
func permissions(d *disk.Disk, name string) fs.FileMode {
	if info, err := d.Lstat(name); err == nil && info.Mode().IsRegular() {
		return info.Mode().Perm()
	}
	return fs.ModePerm
}

// inOrder are the units to be restarted: containerd first, as kubelet talks to it.
func inOrder(changed map[string]bool) (units []string) {
	for _, u := range []string{"containerd.service", "kubelet.service"} {
		if changed[u] {
			units = append(units, u)
		}
	}
	return units
}
