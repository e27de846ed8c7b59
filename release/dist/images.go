package dist

import (
	"context"
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"kamino.dev/kamino/release/image"
)

// nonroot is the user of kamino's image, as distroless images number it. A seal pod runs the
// agent's as root, and says so in its pod.
const nonroot = "65532"

// agentImage is what the seal pod runs: root on a donor, and so it holds the agent and nothing
// else.
func (r *Release) agentImage(context.Context) error {
	return r.image(agent, v1.Config{Entrypoint: []string{"/" + agent}})
}

func (r *Release) kaminoImage(context.Context) error {
	return r.image(kamino, v1.Config{Entrypoint: []string{"/" + kamino}, User: nonroot})
}

// image writes an image of one program for all architectures of Linux.
func (r *Release) image(program string, config v1.Config) error {
	config.Env = []string{"PATH=/"}
	config.Labels = map[string]string{
		"org.opencontainers.image.licenses": "Apache-2.0", "org.opencontainers.image.title": program,
		"org.opencontainers.image.version": r.Version, "org.opencontainers.image.revision": r.Commit,
	}
	var images []v1.Image
	for _, t := range r.linux() {
		img, err := image.New(t.Arch, config, image.Program{Name: program, File: r.binaries[program+" "+t.String()]})
		if err != nil {
			return err
		}
		images = append(images, img)
	}
	index, err := image.Index(images...)
	if err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	r.images[program] = digest
	packed, err := image.Archive(index)
	if err != nil {
		return err
	}
	return r.write(fmt.Sprintf("%s_%s_image.tar", program, r.Version), packed)
}

// reference is how the image of a program is pulled, by digest: a tag can be moved.
func (r *Release) reference(program string) string {
	return r.Registry + "/" + program + "@" + r.images[program].String()
}
