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

	"kamino.dev/kamino/release/image"
)

// Images as machines name them; seal pods name theirs by digest (see Images).
const (
	GuestImage    = gateway + ":" + registryPort + "/guest:1"
	kaminoImage   = gateway + ":" + registryPort + "/kamino:lab"
	unsealedImage = gateway + ":" + registryPort + "/unsealed:1"
)

// Images of seal pods, by digest.
type Images struct {
	Kamino string
	// Unsealed has an agent that switches the donor off without sealing it: what must be refused.
	Unsealed string
}

// buildImages makes the lab's own image and the product's, by the names under
// which machines pull them.
func buildImages(guestFile string, product []image.Program) (map[string]v1.Image, Images, error) {
	built := map[string]v1.Image{}
	for as, content := range map[string]struct {
		programs   []image.Program
		entrypoint string
	}{
		GuestImage:    {[]image.Program{{Name: "guest", File: guestFile}}, "/guest"},
		kaminoImage:   {product, "/kamino"},
		unsealedImage: {[]image.Program{{Name: "kamino-agent", File: guestFile}}, "/kamino-agent"},
	} {
		var err error
		if built[as], err = image.New("amd64", v1.Config{Entrypoint: []string{content.entrypoint}}, content.programs...); err != nil {
			return nil, Images{}, fmt.Errorf("make image %s: %w", as, err)
		}
	}
	kamino, err := byDigest(kaminoImage, built[kaminoImage])
	if err != nil {
		return nil, Images{}, err
	}
	unsealed, err := byDigest(unsealedImage, built[unsealedImage])
	return built, Images{Kamino: kamino, Unsealed: unsealed}, err
}

// byDigest names an image by its digest instead of its tag.
func byDigest(tagged string, img v1.Image) (string, error) {
	ref, err := name.NewTag(tagged, name.Insecure)
	if err != nil {
		return "", err
	}
	digest, err := img.Digest()
	return ref.Repository.Digest(digest.String()).String(), err
}

// newRegistry is a registry with these images.
func newRegistry(ctx context.Context, images map[string]v1.Image) (http.Handler, error) {
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	// Images are put there as every client does, over HTTP.
	server := httptest.NewServer(handler)
	defer server.Close()
	address, err := url.Parse(server.URL)
	if err != nil {
		return nil, err
	}
	for as, built := range images {
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
