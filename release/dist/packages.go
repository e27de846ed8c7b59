package dist

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // the formats, by their names
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// packages are of the agent, for images that somebody builds by other means and for looking at a
// disk. A seal needs none: its pod brings the agent.
func (r *Release) packages(context.Context) error {
	for _, t := range r.linux() {
		for _, format := range []string{"deb", "rpm"} {
			if err := r.pkg(t, format); err != nil {
				return fmt.Errorf("%s of %s for %s: %w", format, agent, t, err)
			}
		}
	}
	return nil
}

func (r *Release) pkg(t Target, format string) error {
	contents, err := r.installed(t)
	if err != nil {
		return err
	}
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: agent, Arch: t.Arch, Platform: t.OS, Version: r.Version, Section: "admin", Priority: "optional",
		Maintainer: "The Kamino authors", Vendor: "Kamino", License: "Apache-2.0", MTime: r.Time,
		Description: "Seal the disk of a Kubernetes node, and start its clones\nkamino-agent makes a node's disk fit to be cloned, makes each clone a machine of its own\nwhen it first boots, and records where the time of a boot goes.",
		Overridables: nfpm.Overridables{
			Contents: contents,
			RPM:      nfpm.RPM{BuildHost: "kamino", Summary: "Seal the disk of a Kubernetes node, and start its clones"},
		},
	})
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return err
	}
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := packager.Package(info, &out); err != nil {
		return err
	}
	return r.write(packager.ConventionalFileName(info), out.Bytes())
}

// installed is what a package puts where (https://specifications.freedesktop.org/fhs/latest).
func (r *Release) installed(t Target) (files.Contents, error) {
	manual, err := r.manual(agent)
	if err != nil {
		return nil, err
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(manual.body); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	page := filepath.Join(r.work, agent+".8.gz")
	if err := os.WriteFile(page, packed.Bytes(), 0o644); err != nil {
		return nil, err
	}
	put := func(from, to string, mode os.FileMode) *files.Content {
		return &files.Content{Source: from, Destination: to, FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root",
			Mode: mode, MTime: r.Time}}
	}
	contents := files.Contents{
		put(r.binaries[agent+" "+t.String()], "/usr/bin/"+agent, 0o755),
		put(page, "/usr/share/man/man8/"+agent+".8.gz", 0o644),
		put(filepath.Join(r.Source, "LICENSE"), "/usr/share/doc/"+agent+"/copyright", 0o644),
		put(filepath.Join(r.Source, "NOTICE"), "/usr/share/doc/"+agent+"/NOTICE", 0o644),
	}
	linked, err := r.linked(agent)
	if err != nil {
		return nil, err
	}
	for _, m := range linked {
		for _, text := range m.Texts {
			contents = append(contents, put(filepath.Join(m.Dir, text), "/usr/share/doc/"+agent+"/licenses/"+m.Path+"/"+text, 0o644))
		}
	}
	return contents, nil
}
