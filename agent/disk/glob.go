package disk

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Found is one match of a pattern.
type Found struct {
	Name string // without links, but perhaps as its last component
	As   string // as the pattern spells it; another than Name where a link was followed
}

// links is 0 where no link was followed, otherwise 1.
func (f Found) links() int {
	if f.Name == f.As {
		return 0
	}
	return 1
}

// Glob expands a pattern of path.Match components; matches are resolved names, sorted, each once.
// Links are followed on the way but never as the last component. What does not exist does not
// match.
func (d *Disk) Glob(pattern string) ([]string, error) {
	found, err := d.Find(pattern)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, f := range found {
		names = append(names, f.Name)
	}
	return names, nil
}

// Find is Glob for a caller that must know by which path each match was found. Where there are
// several, it is the one without links.
func (d *Disk) Find(pattern string) ([]Found, error) {
	matches := []Found{{".", "."}}
	parts := strings.Split(clean(pattern), "/")
	for i, part := range parts {
		var next []Found
		for _, base := range matches {
			found, err := d.expand(base, part, i == len(parts)-1)
			if err != nil {
				return nil, err
			}
			next = append(next, found...)
		}
		matches = next
	}
	slices.SortFunc(matches, func(a, b Found) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.links(), b.links()), strings.Compare(a.As, b.As))
	})
	return slices.CompactFunc(matches, func(a, b Found) bool { return a.Name == b.Name }), nil
}

func (d *Disk) expand(base Found, part string, last bool) ([]Found, error) {
	if !strings.ContainsAny(part, `*?[\`) {
		name, as := path.Join(base.Name, part), path.Join(base.As, part)
		if !last {
			var err error
			if name, err = d.Follow(name); err != nil {
				return nil, absent(err)
			}
		}
		if _, err := d.lstat(name); err != nil {
			return nil, absent(err)
		}
		return []Found{{name, as}}, nil
	}
	entries, err := d.ReadDir(base.Name)
	if err != nil {
		return nil, err
	}
	var out []Found
	for _, e := range entries {
		ok, err := path.Match(part, e.Name())
		if err != nil {
			return nil, fmt.Errorf("match %s: %w", part, err)
		}
		if !ok {
			continue
		}
		name := path.Join(base.Name, e.Name())
		if !last {
			if name, err = d.Follow(name); err != nil {
				continue
			}
		}
		out = append(out, Found{name, path.Join(base.As, e.Name())})
	}
	return out, nil
}
