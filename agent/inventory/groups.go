package inventory

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"kamino.dev/kamino/agent/disk"
)

// Group is one line of what is unknown: a directory without anything of a package or layer, with
// all below it, or the unknown files directly in one with such.
type Group struct {
	Dir   string // relative to the root
	Whole bool   // with all that is below it
	Files []File
	Bytes int64
}

// linesMost is how many groups a person reads in five minutes.
const linesMost = 60

// Groups folds the unknown by directory, sorted by name; where that leaves more than a person
// reads, the deepest directories are folded into those above them.
func (r *Result) Groups() []Group {
	for depth := 12; ; depth-- {
		if all := r.groups(depth); len(all) <= linesMost || depth == 3 {
			return all
		}
	}
}

func (r *Result) groups(depth int) []Group {
	at := map[string]int{}
	var out []Group
	for _, f := range r.Unknown {
		dir, whole := r.top(f.Path)
		if parts := strings.Split(dir, "/"); len(parts) > depth {
			dir, whole = strings.Join(parts[:depth], "/"), true
		}
		i, ok := at[dir]
		if !ok {
			i = len(out)
			at[dir] = i
			out = append(out, Group{Dir: dir, Whole: whole})
		}
		out[i].Whole = out[i].Whole || whole
		out[i].Files = append(out[i].Files, f)
		out[i].Bytes += f.Size
	}
	slices.SortFunc(out, func(a, b Group) int { return strings.Compare(a.Dir, b.Dir) })
	return out
}

// topDirs hold every kind of thing on any system: a line for one of them as a whole would say
// nothing.
var topDirs = []string{".", "etc", "usr", "var", "var/lib", "opt", "home", "usr/local"}

// top is the highest directory above a file below which nothing is known, or the file's own.
func (r *Result) top(name string) (dir string, whole bool) {
	dir = path.Dir(name)
	for at := dir; !slices.Contains(topDirs, at) && !r.settled[keyOf(at)]; at = path.Dir(at) {
		dir, whole = at, true
	}
	return dir, whole
}

// String is the group in one line: the directory, how much, and the first names.
func (g Group) String() string {
	const most = 160
	names := make([]string, len(g.Files))
	for i, f := range g.Files {
		names[i] = disk.Shown(strings.TrimPrefix(f.Path, g.Dir+"/"))
	}
	if len(names) == 1 {
		return fmt.Sprintf("/%s (%s; %s)", disk.Shown(g.Files[0].Path), size(g.Bytes), g.Files[0].Why)
	}
	text := ""
	for i, name := range names {
		if len(text)+len(name) > most {
			text += fmt.Sprintf(" and %d more", len(names)-i)
			break
		}
		text += " " + name
	}
	below := ""
	if g.Whole {
		below = "/"
	}
	return fmt.Sprintf("/%s%s (%d files, %s):%s", disk.Shown(strings.TrimPrefix(g.Dir, ".")), below, len(g.Files), size(g.Bytes), text)
}

func size(n int64) string {
	switch {
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 10<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}
