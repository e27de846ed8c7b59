// Package image makes container images of static programs, without a daemon and
// without a base image.
package image

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
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
		if err := w.WriteHeader(&tar.Header{Name: p.Name, Mode: 0o555, Size: int64(len(body)), Typeflag: tar.TypeReg, ModTime: time.Unix(0, 0)}); err != nil {
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
