package machines

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"kamino.dev/kamino/internal/image"
)

// Images as machines name them.
const (
	GuestImage  = gateway + ":" + registryPort + "/guest:1"
	KaminoImage = gateway + ":" + registryPort + "/kamino:lab"
	// UnsealedImage has an agent that switches the donor off without sealing it: what must be refused.
	UnsealedImage = gateway + ":" + registryPort + "/unsealed:1"
)

// newRegistry is a registry with the lab's own image and the product's, as
// machines pull them.
func newRegistry(ctx context.Context, guestFile string, product []image.Program) (http.Handler, error) {
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	// Images are put there as every client does, over HTTP.
	server := httptest.NewServer(handler)
	defer server.Close()
	address, err := url.Parse(server.URL)
	if err != nil {
		return nil, err
	}
	for as, content := range map[string]struct {
		programs   []image.Program
		entrypoint string
	}{
		GuestImage:    {[]image.Program{{Name: "guest", File: guestFile}}, "/guest"},
		KaminoImage:   {product, "/kamino"},
		UnsealedImage: {[]image.Program{{Name: "kamino-agent", File: guestFile}}, "/kamino-agent"},
	} {
		built, err := image.New("amd64", v1.Config{Entrypoint: []string{content.entrypoint}}, content.programs...)
		if err != nil {
			return nil, fmt.Errorf("make image %s: %w", as, err)
		}
		_, path, _ := strings.Cut(as, "/")
		ref, err := name.ParseReference(address.Host+"/"+path, name.Insecure)
		if err != nil {
			return nil, err
		}
		if err := remote.Write(ref, built, remote.WithContext(ctx)); err != nil {
			return nil, fmt.Errorf("push image %s: %w", as, err)
		}
	}
	return handler, nil
}
