// Command image writes the container image of Kamino as a tarball in OCI
// layout, for amd64 and arm64, without a daemon and without a base image: a
// static binary, the agent that the seal pod installs on a donor, and a user
// that is not root.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"kamino.dev/kamino/release/image"
)

// nonroot is the user of the image, as distroless images number it. The seal
// pod alone runs as root, and says so in its pod.
const nonroot = 65532

func main() {
	source := flag.String("source", "..", "directory of the product's module")
	version := flag.String("version", "dev", "version that the binaries tell")
	archs := flag.String("arch", "amd64,arm64", "architectures, separated by commas")
	out := flag.String("o", "dist/kamino-image.tar", "tarball to write")
	flag.Parse()
	if err := run(*source, *version, *out, strings.Split(*archs, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(source, version, out string, archs []string) error {
	work, err := os.MkdirTemp("", "kamino-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	var images []v1.Image
	for _, arch := range archs {
		img, err := build(source, work, version, arch)
		if err != nil {
			return fmt.Errorf("build for %s: %w", arch, err)
		}
		if err := printSizes(img, arch); err != nil {
			return err
		}
		images = append(images, img)
	}
	index, err := image.Index(images...)
	if err != nil {
		return err
	}
	packed, err := image.Archive(index)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(out, packed, 0o644); err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	fmt.Printf("%s %s %.1f MB\n", out, digest, float64(len(packed))/1e6)
	return nil
}

// printSizes prints what a node pulls and what it unpacks.
func printSizes(img v1.Image, arch string) error {
	layers, err := img.Layers()
	if err != nil {
		return err
	}
	var pulled, unpacked int64
	for _, l := range layers {
		size, err := l.Size()
		if err != nil {
			return err
		}
		pulled += size
		content, err := l.Uncompressed()
		if err != nil {
			return err
		}
		n, err := io.Copy(io.Discard, content)
		content.Close()
		if err != nil {
			return err
		}
		unpacked += n
	}
	fmt.Printf("linux/%s pulled %.2f MB unpacked %.2f MB\n", arch, float64(pulled)/1e6, float64(unpacked)/1e6)
	return nil
}

// build makes the image of one architecture: two binaries and nothing else.
func build(source, work, version, arch string) (v1.Image, error) {
	var programs []image.Program
	for _, name := range []string{"kamino", "kamino-agent"} {
		file := filepath.Join(work, name+"-"+arch)
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w -X main.version="+version, "-o", file, "./cmd/"+name)
		cmd.Dir = source
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
		cmd.Stderr = os.Stderr
		if err := cmd.Run(); err != nil {
			return nil, fmt.Errorf("build %s: %w", name, err)
		}
		programs = append(programs, image.Program{Name: name, File: file})
	}
	return image.New(arch, v1.Config{
		User: fmt.Sprint(nonroot), Entrypoint: []string{"/kamino"}, Env: []string{"PATH=/"},
		Labels: map[string]string{"org.opencontainers.image.licenses": "Apache-2.0", "org.opencontainers.image.title": "kamino"},
	}, programs...)
}
