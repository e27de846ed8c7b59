package machines

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Images as machines name them.
const (
	GuestImage  = gateway + ":" + registryPort + "/guest:1"
	KaminoImage = gateway + ":" + registryPort + "/kamino:lab"
	// UnsealedImage has an agent that switches the donor off without sealing it: what must be refused.
	UnsealedImage = gateway + ":" + registryPort + "/unsealed:1"
)

// program is a static binary on its way into an image.
type program struct{ name, file string }

// newRegistry is a registry with the lab's own image and the product's, as
// machines pull them.
func newRegistry(ctx context.Context, guestFile string, product []program) (http.Handler, error) {
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	// Images are put there as every client does, over HTTP.
	server := httptest.NewServer(handler)
	defer server.Close()
	at, err := url.Parse(server.URL)
	if err != nil {
		return nil, err
	}
	for image, content := range map[string]struct {
		programs   []program
		entrypoint string
	}{
		GuestImage:    {[]program{{"guest", guestFile}}, "/guest"},
		KaminoImage:   {product, "/kamino"},
		UnsealedImage: {[]program{{"kamino-agent", guestFile}}, "/kamino-agent"},
	} {
		built, err := newImage(content.programs, content.entrypoint)
		if err != nil {
			return nil, fmt.Errorf("make image %s: %w", image, err)
		}
		_, path, _ := strings.Cut(image, "/")
		ref, err := name.ParseReference(at.Host+"/"+path, name.Insecure)
		if err != nil {
			return nil, err
		}
		if err := remote.Write(ref, built, remote.WithContext(ctx)); err != nil {
			return nil, fmt.Errorf("push image %s: %w", image, err)
		}
	}
	return handler, nil
}

// newImage has one layer with programs in its root, as the product's image has.
func newImage(programs []program, entrypoint string) (v1.Image, error) {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, p := range programs {
		body, err := os.ReadFile(p.file)
		if err != nil {
			return nil, err
		}
		if err := w.WriteHeader(&tar.Header{Name: p.name, Mode: 0o555, Size: int64(len(body)), Typeflag: tar.TypeReg, ModTime: time.Unix(0, 0)}); err != nil {
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
	image, err := mutate.AppendLayers(empty.Image, l)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", "amd64"
	config.Config.Entrypoint = []string{entrypoint}
	return mutate.ConfigFile(image, config)
}
