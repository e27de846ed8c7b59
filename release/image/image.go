// Package image makes container images of static programs, without a daemon and
// without a base image.
package image

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Program is a static program and its place in an image.
type Program struct {
	Name string // in the image, without the leading slash
	File string // where it is read from
}

// New makes an image for Linux on an architecture, as GOARCH names it: the
// programs in one layer and nothing else. The same programs give the same
// digest.
func New(arch string, config v1.Config, programs ...Program) (v1.Image, error) {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, p := range programs {
		body, err := os.ReadFile(p.File)
		if err != nil {
			return nil, err
		}
		// No times in it: they would change the digest.
		if err := w.WriteHeader(&tar.Header{Name: p.Name, Mode: 0o555, Size: int64(len(body)), Typeflag: tar.TypeReg,
			ModTime: time.Unix(0, 0)}); err != nil {
			return nil, err
		}
		if _, err := w.Write(body); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer.Bytes())), nil })
	if err != nil {
		return nil, err
	}
	img, err := mutate.AppendLayers(empty.Image, l)
	if err != nil {
		return nil, err
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read config: %w", err)
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Config = "linux", arch, config
	return mutate.ConfigFile(img, file)
}

// Index joins the images of several architectures under one name.
func Index(images ...v1.Image) (v1.ImageIndex, error) {
	var index v1.ImageIndex = empty.Index
	for _, img := range images {
		file, err := img.ConfigFile()
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: file.Platform()}})
	}
	return index, nil
}

// Archive is an index as an OCI layout in a tarball, without times or owners
// (https://github.com/opencontainers/image-spec/blob/main/image-layout.md).
func Archive(index v1.ImageIndex) ([]byte, error) {
	dir, err := os.MkdirTemp("", "kamino-image-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if _, err := layout.Write(dir, index); err != nil {
		return nil, fmt.Errorf("write layout: %w", err)
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		body, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Name: filepath.ToSlash(name), Mode: 0o644, Size: int64(len(body)),
			Typeflag: tar.TypeReg}); err != nil {
			return err
		}
		_, err = w.Write(body)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
