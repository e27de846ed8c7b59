// Command release makes the files of a release (docs/release.md) from the commit that is checked
// out.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"kamino.dev/kamino/release/dist"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	r := dist.Release{Log: os.Stdout, Targets: dist.Targets}
	flag.StringVar(&r.Source, "source", "..", "directory of the product's module, a git work tree without changes")
	flag.StringVar(&r.Out, "o", "../dist", "directory to write to; it must be empty or not exist")
	flag.StringVar(&r.Version, "version", "", "version, as in 1.2.3 (default that of the commit's tag, v1.2.3)")
	flag.StringVar(&r.Registry, "registry", "", "where the images will be pushed to, as in ghcr.io/example; needed")
	key := flag.String("key", "", "private key that signs, made with: "+dist.NewKeyHint)
	unsigned := flag.Bool("unsigned", false, "make a release without signatures")
	vulndb := flag.String("vulndb", "", "directory with a copy of https://vuln.go.dev, which govulncheck asks about both programs; needed")
	unchecked := flag.Bool("unchecked", false, "make a release that nobody has checked for known vulnerabilities")
	targets := flag.String("targets", "", "platforms, as in linux/amd64,linux/arm64 (default all)")
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	if (*key == "") != *unsigned {
		return errors.New("name the key that signs with -key FILE, or say -unsigned; a key is made with: " + dist.NewKeyHint)
	}
	var err error
	if *key != "" {
		if r.Key, err = dist.ReadKey(*key); err != nil {
			return err
		}
	}
	if *targets != "" {
		if r.Targets, err = dist.ParseTargets(*targets); err != nil {
			return err
		}
	}
	if err := describe(&r); err != nil {
		return err
	}
	for _, dir := range []*string{&r.Source, &r.Out} {
		if *dir, err = filepath.Abs(*dir); err != nil {
			return err
		}
	}
	if err := checked(ctx, r.Source, *vulndb, *unchecked, r.Log); err != nil {
		return err
	}
	return dist.Make(ctx, r)
}

// describe reads from git what is released: a tagged commit, and nothing besides.
func describe(r *dist.Release) error {
	changes, err := git(r.Source, "status", "--porcelain")
	if err != nil {
		return err
	}
	if changes != "" {
		return fmt.Errorf("the work tree has changes, which no commit would tell:\n%s", changes)
	}
	if r.Commit, err = git(r.Source, "rev-parse", "HEAD"); err != nil {
		return err
	}
	at, err := git(r.Source, "show", "-s", "--format=%ct", "HEAD")
	if err != nil {
		return err
	}
	seconds, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return err
	}
	r.Time = time.Unix(seconds, 0).UTC()
	if r.Version == "" {
		tag, err := git(r.Source, "describe", "--tags", "--exact-match", "--match", "v*")
		if err != nil {
			return fmt.Errorf("the commit has no tag; make one (git tag v1.2.3), or name the version with -version: %w", err)
		}
		r.Version = strings.TrimPrefix(tag, "v")
	}
	return nil
}

func git(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
		}
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}
