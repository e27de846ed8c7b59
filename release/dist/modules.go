package dist

import (
	"debug/buildinfo"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
)

// module is a Go module that a program is linked with.
type module struct {
	Path, Version string
	Sum           string   // as go.sum writes it (https://go.dev/ref/mod#go-sum-files)
	Dir           string   // where its source is on this machine
	License       string   // SPDX identifier (https://spdx.org/licenses)
	Texts         []string // its licence's files, which who passes the program on must pass on too
}

// linked are the modules that a program is linked with on any target, ordered by path.
func (r *Release) linked(program string) ([]module, error) {
	all := map[string]module{}
	for _, t := range r.Targets {
		if file, ok := r.binaries[program+" "+t.String()]; ok {
			found, _, err := r.contents(file)
			if err != nil {
				return nil, err
			}
			for _, m := range found {
				all[m.Path] = m
			}
		}
	}
	return slices.SortedFunc(maps.Values(all), func(a, b module) int { return strings.Compare(a.Path, b.Path) }), nil
}

// contents are the modules that a program says it was linked with
// (https://pkg.go.dev/debug/buildinfo), with what their sources say of their licences, and the Go that linked it.
func (r *Release) contents(file string) (found []module, goVersion string, err error) {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return nil, "", err
	}
	if err := r.read(info.Deps); err != nil {
		return nil, "", err
	}
	for _, d := range info.Deps {
		found = append(found, r.modules[d.Path])
	}
	return found, info.GoVersion, nil
}

// read notes those modules that were not read before.
func (r *Release) read(deps []*debug.Module) error {
	list := []string{"list", "-m", "-f", "{{.Path}} {{.Dir}}"}
	sums := map[string]*debug.Module{}
	for _, d := range deps {
		if _, ok := r.modules[d.Path]; !ok {
			list, sums[d.Path] = append(list, d.Path), d
		}
	}
	if len(sums) == 0 {
		return nil
	}
	cmd := exec.Command("go", list...)
	cmd.Dir, cmd.Stderr = r.Source, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("find the sources of modules: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		path, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
		m := module{Path: path, Version: sums[path].Version, Sum: sums[path].Sum, Dir: dir}
		if m.License, m.Texts, err = licenseOf(dir); err != nil {
			return fmt.Errorf("module %s: %w", path, err)
		}
		r.modules[path] = m
	}
	return nil
}

// textName is how files are called that hold a licence or what one demands to be passed on.
var textName = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|copyright|patents)([.-].*)?$`)

// phrases tell the licences that linked modules have; each stands in its own licence only. A
// licence that is none of them is an error: somebody has to read it first.
var phrases = []struct{ license, phrase string }{
	{"Apache-2.0", "apache license version 2.0"},
	{"MPL-2.0", "mozilla public license version 2.0"},
	{"ISC", "permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is hereby granted"},
	{"ISC", "permission to use, copy, modify, and distribute this software for any purpose with or without fee is hereby granted"},
	{"MIT", "permission is hereby granted, free of charge, to any person obtaining a copy"},
	{"BSD-3-Clause", "neither the name of"},
	{"BSD-3-Clause", "the names of its contributors may not be used"},
	{"BSD-2-Clause", "redistributions in binary form must reproduce the above copyright"},
}

var space = regexp.MustCompile(`[\s,]+`)

// licenseOf reads which licences a module is under; two are told as "A AND B".
func licenseOf(dir string) (string, []string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", nil, err
	}
	var texts, licenses []string
	for _, e := range entries {
		if e.IsDir() || !textName.MatchString(e.Name()) {
			continue
		}
		texts = append(texts, e.Name())
		body, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return "", nil, err
		}
		if license := recognize(string(body)); license != "" && !slices.Contains(licenses, license) {
			licenses = append(licenses, license)
		}
	}
	if len(licenses) == 0 {
		return "", nil, fmt.Errorf("no licence that is known in %s (files: %s)", dir, strings.Join(texts, ", "))
	}
	slices.Sort(licenses)
	return strings.Join(licenses, " AND "), texts, nil
}

func recognize(text string) string {
	plain := space.ReplaceAllString(strings.ToLower(text), " ")
	for _, p := range phrases {
		if strings.Contains(plain, space.ReplaceAllString(p.phrase, " ")) {
			return p.license
		}
	}
	return ""
}
