package dist

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// entry is a file of an archive.
type entry struct {
	name string
	mode int64
	body []byte
}

// tarball packs entries below a folder, with one time and no owner.
func tarball(folder string, at time.Time, entries []entry) ([]byte, error) {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	w := tar.NewWriter(z)
	for _, e := range entries {
		h := &tar.Header{Name: folder + "/" + e.name, Mode: e.mode, Size: int64(len(e.body)), Typeflag: tar.TypeReg, ModTime: at,
			Format: tar.FormatPAX}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.body); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// zipped is the same for Windows.
func zipped(folder string, at time.Time, entries []entry) ([]byte, error) {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, e := range entries {
		h := &zip.FileHeader{Name: folder + "/" + e.name, Method: zip.Deflate, Modified: at}
		h.SetMode(os.FileMode(e.mode))
		f, err := w.CreateHeader(h)
		if err != nil {
			return nil, err
		}
		if _, err := f.Write(e.body); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// archives are one for each program and target: the program, its manual, how the shell completes
// it, and what its licences demand; with kamino also the pages, and what they tell to apply.
func (r *Release) archives(ctx context.Context) error {
	completions, err := r.completions(ctx)
	if err != nil {
		return err
	}
	pages, err := r.pages()
	if err != nil {
		return err
	}
	for _, a := range []struct {
		program string
		targets []Target
		more    []entry
	}{{kamino, r.Targets, slices.Concat(completions, pages)}, {agent, r.linux(), nil}} {
		manual, err := r.manual(a.program)
		if err != nil {
			return err
		}
		papers, err := r.papers(a.program)
		if err != nil {
			return err
		}
		for _, t := range a.targets {
			if err := r.archive(a.program, t, slices.Concat([]entry{manual}, a.more, papers)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *Release) archive(program string, t Target, rest []entry) error {
	body, err := os.ReadFile(r.binaries[program+" "+t.String()])
	if err != nil {
		return err
	}
	name, pack, ending := program, tarball, ".tar.gz"
	if t.OS == "windows" {
		name, pack, ending = program+".exe", zipped, ".zip"
	}
	base := r.base(program, t)
	packed, err := pack(base, r.Time, append([]entry{{name: name, mode: 0o755, body: body}}, rest...))
	if err != nil {
		return err
	}
	return r.write(base+ending, packed)
}

// base is how the files of a program for a target begin.
func (r *Release) base(program string, t Target) string {
	return fmt.Sprintf("%s_%s_%s_%s", program, r.Version, t.OS, t.Arch)
}

// pages are the README, docs/ with the roles and policies that it tells to grant, and the kind, so
// that an installation needs no checkout.
func (r *Release) pages() ([]entry, error) {
	var entries []entry
	add := func(path, name string) error {
		body, err := os.ReadFile(path)
		entries = append(entries, entry{name: name, mode: 0o644, body: body})
		return err
	}
	for _, name := range []string{"README.md", "SCOPE.md", "SECURITY.md", "CONTRIBUTING.md"} {
		if err := add(filepath.Join(r.Source, name), name); err != nil {
			return nil, err
		}
	}
	err := filepath.WalkDir(filepath.Join(r.Source, "docs"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) == ".go" {
			return err
		}
		name, err := filepath.Rel(r.Source, path)
		if err != nil {
			return err
		}
		return add(path, filepath.ToSlash(name))
	})
	if err != nil {
		return nil, err
	}
	return entries, add(filepath.Join(r.Source, kindFile), "crds/"+filepath.Base(kindFile))
}

// papers are what travels with each program: our licence, and those of what is linked.
func (r *Release) papers(program string) ([]entry, error) {
	var entries []entry
	for _, name := range []string{"LICENSE", "NOTICE", "CHANGELOG.md"} {
		body, err := os.ReadFile(filepath.Join(r.Source, name))
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry{name: name, mode: 0o644, body: body})
	}
	linked, err := r.linked(program)
	if err != nil {
		return nil, err
	}
	for _, m := range linked {
		for _, file := range m.Texts {
			body, err := os.ReadFile(filepath.Join(m.Dir, file))
			if err != nil {
				return nil, err
			}
			entries = append(entries, entry{name: "licenses/" + m.Path + "/" + file, mode: 0o644, body: body})
		}
	}
	return entries, nil
}
