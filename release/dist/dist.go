// Package dist makes what a release of Kamino is made of: archives, packages, container images and
// charts, and beside them what lets anybody check these without asking us: checksums, lists of
// contents (SBOM), where everything comes from (provenance), and signatures.
//
// Made twice from the same commit with the same Go, everything but nothing differs: no time of the
// build, no path of the machine and no random number goes into a file. The time in archives is the
// commit's.
package dist

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Target is a platform, as GOOS and GOARCH name it.
type Target struct{ OS, Arch string }

func (t Target) String() string { return t.OS + "/" + t.Arch }

// Targets are those that kamino is released for; kamino-agent is for those of Linux.
var Targets = []Target{
	{"linux", "amd64"}, {"linux", "arm64"},
	{"darwin", "amd64"}, {"darwin", "arm64"},
	{"windows", "amd64"}, {"windows", "arm64"},
}

// Release is one release: what it is made of, and where it goes.
type Release struct {
	Source   string    // directory of the product's module
	Out      string    // directory that the files go to; it must be empty or not exist
	Version  string    // semantic version, without v: 1.2.3 or 1.2.3-rc.1
	Commit   string    // full hash of the source's commit
	Time     time.Time // of the commit
	Registry string    // where the images will be pushed to: ghcr.io/example
	Targets  []Target
	Key      *ecdsa.PrivateKey // signs; nil makes a release without signatures
	Log      io.Writer         // a line for each file that is done

	work     string
	binaries map[string]string // program and target to file
	modules  map[string]module // of all programs, by path; filled as they are asked for
	images   map[string]v1.Hash
}

// step is a part of making a release; later ones use what earlier ones made.
type step struct {
	name string
	do   func(*Release, context.Context) error
}

// steps are in the order in which digests travel: that of the agent's image goes into kamino, those
// of both images into the charts, and those of everything into checksums and provenance.
func steps() []step {
	return []step{
		{"build kamino-agent", (*Release).buildAgent},
		{"make the agent's image", (*Release).agentImage},
		{"build kamino", (*Release).buildKamino},
		{"make kamino's image", (*Release).kaminoImage},
		{"write archives", (*Release).archives},
		{"write packages", (*Release).packages},
		{"write charts", (*Release).charts},
		{"write lists of contents", (*Release).sboms},
		{"write provenance", (*Release).provenance},
		{"write checksums", (*Release).checksums},
	}
}

// semver is a version as charts and packages demand one (https://semver.org), without build metadata, which tags of images cannot have.
var semver = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?$`)

// Make writes the files of r into r.Out. It fails before it builds anything where r says something
// that cannot be.
func Make(ctx context.Context, r Release) error {
	if err := r.check(); err != nil {
		return err
	}
	var err error
	if r.work, err = os.MkdirTemp("", "kamino-release-"); err != nil {
		return err
	}
	defer os.RemoveAll(r.work)
	if err := os.MkdirAll(r.Out, 0o755); err != nil {
		return err
	}
	r.binaries, r.modules, r.images = map[string]string{}, map[string]module{}, map[string]v1.Hash{}
	for _, s := range steps() {
		if err := s.do(&r, ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

func (r *Release) check() error {
	if !semver.MatchString(r.Version) {
		return fmt.Errorf("invalid version %q: want MAJOR.MINOR.PATCH, as in 1.2.3 or 1.2.3-rc.1", r.Version)
	}
	if len(r.Targets) == 0 {
		return errors.New("no targets")
	}
	if r.Registry == "" {
		return errors.New("no registry: kamino and the charts name the images by where they are pulled from")
	}
	entries, err := os.ReadDir(r.Out)
	if err == nil && len(entries) > 0 {
		return fmt.Errorf("directory %s is not empty", r.Out)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// linux are the targets that nodes and pods run on.
func (r *Release) linux() (targets []Target) {
	for _, t := range r.Targets {
		if t.OS == "linux" {
			targets = append(targets, t)
		}
	}
	return targets
}

// write makes a file of the release.
func (r *Release) write(name string, body []byte) error {
	if err := os.WriteFile(filepath.Join(r.Out, name), body, 0o644); err != nil {
		return err
	}
	fmt.Fprintf(r.Log, "%-56s %8.2f MB\n", name, float64(len(body))/1e6)
	return nil
}

// ParseTargets reads platforms as GOOS/GOARCH, with commas between them: some of those that Kamino
// is released for, one of Linux among them, which pods and nodes need.
func ParseTargets(text string) (targets []Target, err error) {
	for word := range strings.SplitSeq(text, ",") {
		i := slices.IndexFunc(Targets, func(t Target) bool { return t.String() == word })
		if i < 0 {
			return nil, fmt.Errorf("invalid target %q: want some of %v", word, Targets)
		}
		targets = append(targets, Targets[i])
	}
	if !slices.ContainsFunc(targets, func(t Target) bool { return t.OS == "linux" }) {
		return nil, errors.New("no target of linux: the images would be empty")
	}
	return targets, nil
}
