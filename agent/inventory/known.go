package inventory

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

// Known is what a run's policy says of files that would be unknown: they may travel, as long as
// they are what they were when somebody looked.
type Known struct {
	// Path is absolute: a name, or a pattern of path.Match components. A directory stands for what
	// is below it.
	Path string `yaml:"path"`
	// SHA256 is the digest, in hex, that the file must have; empty: any content.
	SHA256 string `yaml:"sha256,omitempty"`
	// Tree is the digest over names and contents of all unknown files at and below Path that no
	// other entry allows. One file more, or another content, and none of them is allowed.
	Tree string `yaml:"tree,omitempty"`
	// Reviewed is false in what WriteAllow writes, until somebody has looked. Such an entry counts
	// all the same, and who gives the policy to a run is warned; absent is true.
	Reviewed *bool  `yaml:"reviewed,omitempty"`
	Why      string `yaml:"why"`
}

// Validate checks one entry by itself.
func (k Known) Validate() error {
	if !path.IsAbs(k.Path) || path.Clean(k.Path) != k.Path || k.Path == "/" {
		return fmt.Errorf("path: %q must be an absolute path without . or .. and not the root", k.Path)
	}
	if _, err := path.Match(k.Path, ""); err != nil {
		return fmt.Errorf("path: %q: %w", k.Path, err)
	}
	for _, field := range [][2]string{{"sha256", k.SHA256}, {"tree", k.Tree}} {
		if b, err := hex.DecodeString(field[1]); err != nil || field[1] != "" && len(b) != sha256.Size {
			return fmt.Errorf("%s: %q is not a SHA-256 in hex", field[0], field[1])
		}
	}
	if k.SHA256 != "" && k.Tree != "" {
		return fmt.Errorf("path: %s has both sha256 and tree; a file has the one, a directory the other", k.Path)
	}
	if k.Tree != "" && strings.ContainsAny(k.Path, `*?[\`) {
		return fmt.Errorf("path: %q has a tree digest, and must name one directory", k.Path)
	}
	if k.Why == "" {
		return fmt.Errorf("%s: why is required", k.Path)
	}
	return nil
}

// allow keeps all unknown files as Unexplained, and moves what the policy allows from the unknown
// to the allowed.
func (r *Result) allow(known []Known) {
	r.Unexplained = r.Unknown
	exact, globs := map[string][]Known{}, []Known{}
	for _, k := range known {
		switch {
		case k.Tree != "":
		case strings.ContainsAny(k.Path, `*?[\`):
			globs = append(globs, k)
		default:
			exact[k.Path[1:]] = append(exact[k.Path[1:]], k)
		}
	}
	r.drop(func(f File) bool {
		fits := func(k Known) bool { return k.SHA256 == "" || k.SHA256 == f.Digest.String() }
		for at := f.Path; at != "."; at = path.Dir(at) {
			for _, k := range exact[at] {
				if fits(k) && (k.SHA256 == "" || at == f.Path) {
					return true
				}
			}
		}
		for _, k := range globs {
			if fits(k) && covers(k.Path, f.Path) {
				return true
			}
		}
		return false
	})
	for _, k := range known {
		if k.Tree == "" {
			continue
		}
		dir := k.Path[1:]
		inside := func(f File) bool { return f.Path == dir || within(f.Path, dir) }
		var below []File
		for _, f := range r.Unknown {
			if inside(f) {
				below = append(below, f)
			}
		}
		if len(below) > 0 && treeSum(below) == k.Tree {
			r.drop(inside)
		}
	}
}

func (r *Result) drop(allowed func(File) bool) {
	at := slices.IndexFunc(r.Unknown, allowed)
	if at < 0 {
		return // without a copy of all of them
	}
	rest, move := slices.Clone(r.Unknown[:at]), Count{}
	for _, f := range r.Unknown[at:] {
		if !allowed(f) {
			rest = append(rest, f)
			continue
		}
		move.Files++
		move.Bytes += f.Size
	}
	r.Unknown = rest
	for class, sign := range map[Class]int{Allowed: 1, Unknown: -1} {
		c := r.Counts[class]
		r.Counts[class] = Count{c.Files + sign*move.Files, c.Bytes + int64(sign)*move.Bytes}
	}
}

// treeSum is the SHA-256 of lines "DIGEST  PATH", as sha256sum(1) writes them, of files sorted by
// path.
func treeSum(files []File) string {
	h := sha256.New()
	for _, f := range files {
		fmt.Fprintf(h, "%s  %s\n", f.Digest, f.Path)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Entries of a policy for review: how many files a directory may have for each to get an entry of
// its own, and how many entries fit in a policy.
const (
	eachMost    = 16
	entriesMost = 200
)

// WriteAllow writes the groups' files as verify.known of a SealConfig, to be reviewed and then
// given to a run. Files have their digest; a directory of many unknown files, and nothing known,
// one over all of them.
func (r *Result) WriteAllow(w io.Writer) error {
	groups := r.Groups()
	each := eachMost
	for r.entries(groups, each) > entriesMost && each > 1 {
		each /= 2
	}
	_, err := fmt.Fprintf(w, "# %d files that nothing explains. Review each entry: remove what must not be in an image,\n"+
		"# state why the others may, and remove reviewed: false. An entry without sha256 or tree allows any content. Give the file to runs with --seal-policy.\n"+
		"apiVersion: kamino.dev/v1alpha1\nkind: SealConfig\nverify:\n  known:%s\n", len(r.Unknown), empty(len(r.Unknown)))
	for _, g := range groups {
		if err != nil {
			return err
		}
		if g.folds(each) {
			_, err = fmt.Fprintf(w, "  - {path: %s, tree: %s, reviewed: false, why: %q}\n", quote(g.Dir), treeSum(g.Files),
				fmt.Sprintf("%d files, %s", len(g.Files), size(g.Bytes)))
			continue
		}
		for _, f := range g.Files {
			if _, err = fmt.Fprintf(w, "  - {path: %s, sha256: %s, reviewed: false, why: %q}\n", quote(f.Path), f.Digest,
				f.Why); err != nil {
				return err
			}
		}
	}
	return err
}

func (r *Result) entries(groups []Group, each int) (n int) {
	for _, g := range groups {
		if g.folds(each) {
			n++
		} else {
			n += len(g.Files)
		}
	}
	return n
}

func empty(n int) string {
	if n == 0 {
		return " []"
	}
	return ""
}

// quote writes a path as a pattern that matches only itself, in YAML's double quotes. YAML is text:
// for a byte that is none it has "?", which matches any; the digest beside it does not.
func quote(name string) string {
	var text strings.Builder
	for _, r := range escape.Replace(name) {
		if r == utf8.RuneError {
			r = '?'
		}
		text.WriteRune(r)
	}
	return fmt.Sprintf("%q", "/"+text.String())
}

// folds reports whether a directory gets one entry with a tree digest, which needs a name that is
// no pattern.
func (g Group) folds(each int) bool {
	return g.Whole && len(g.Files) > each && !strings.ContainsAny(quote(g.Dir), `*?[\`)
}

var escape = strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`)
