package nodeconfig

import (
	"errors"
	"path"
	"slices"
	"strconv"
	"strings"
)

// importing returns containerd's configuration with an import of RuntimePath, which is last, as the
// later of two files wins. It is the same text where a pattern there matches that path already.
// containerd refuses an import without a wildcard whose file is gone, so ours has one
// (containerd, cmd/containerd/server/config, resolveImports).
func importing(text string) (string, error) {
	const all, own = "/etc/containerd/conf.d/*.toml", "/etc/containerd/conf.d/90-kamino*.toml"
	found, err := topLevel(text, "imports")
	switch {
	case err != nil:
		return "", err
	case found == nil && text == "":
		return `imports = ["` + all + `"]` + "\nversion = 2\n", nil
	case found == nil: // a top-level key must stand before the first table
		return `imports = ["` + all + `"]` + "\n" + text, nil
	case !found.array:
		return "", errors.New("imports is not an array")
	case len(found.words) == 0:
		return text[:found.from+1] + `"` + all + `"` + text[found.from+1:], nil
	case slices.ContainsFunc(found.words, matchesRuntime):
		return text, nil
	}
	return text[:found.behind] + `, "` + own + `"` + text[found.behind:], nil
}

// matchesRuntime reports whether an import, which may be relative to the file it stands in, is of
// RuntimePath.
func matchesRuntime(pattern string) bool {
	if !path.IsAbs(pattern) {
		pattern = path.Join("/", path.Dir(runtimeMain), pattern)
	}
	matches, err := path.Match(path.Clean(pattern), "/"+RuntimePath)
	return err == nil && matches
}

// tomlValue is a value in a TOML document: where it begins, whether it is an array, the strings in
// it, and where the last one ends.
type tomlValue struct {
	from, behind int
	array        bool
	words        []string
}

var errTOML = errors.New("not TOML")

// topLevel finds the value of a key before the first table; nil where there is none. It reads as
// much of TOML (https://toml.io/en/v1.0.0) as that needs.
func topLevel(text, key string) (*tomlValue, error) {
	for at := 0; at < len(text); {
		switch c := text[at]; {
		case strings.IndexByte(" \t\r\n", c) >= 0:
			at++
			continue
		case c == '#':
			at += lineEnd(text[at:])
			continue
		case c == '[':
			return nil, nil
		}
		name, _, is := strings.Cut(text[at:at+lineEnd(text[at:])], "=")
		if !is {
			return nil, errTOML
		}
		at += len(name) + 1
		at += len(text[at:]) - len(strings.TrimLeft(text[at:], " \t"))
		v, end, err := value(text, at)
		if err != nil {
			return nil, err
		}
		if strings.Trim(strings.TrimSpace(name), `"'`) == key {
			return v, nil
		}
		at = end
	}
	return nil, nil
}

// lineEnd is the length of the first line without its line break.
func lineEnd(text string) int {
	if n := strings.IndexByte(text, '\n'); n >= 0 {
		return n
	}
	return len(text)
}

// value reads the value at a position, to the end of its last line.
func value(text string, from int) (v *tomlValue, end int, err error) {
	v = &tomlValue{from: from, array: strings.HasPrefix(text[from:], "[")}
	depth, at := 0, from
	for at < len(text) {
		switch rest := text[at:]; rest[0] {
		case '"', '\'':
			word, n := quoted(rest)
			if n == 0 {
				return nil, 0, errTOML
			}
			at += n
			v.words, v.behind = append(v.words, word), at
			continue
		case '#':
			at += lineEnd(rest)
			continue
		case '[', '{':
			depth++
		case ']', '}':
			depth--
		case '\n':
			if depth <= 0 {
				return v, at, nil
			}
		}
		at++
	}
	if depth > 0 {
		return nil, 0, errTOML
	}
	return v, at, nil
}

// quoted reads a string, and returns its length with the quotes; 0: it does not end.
func quoted(text string) (word string, n int) {
	if triple := text[:1] + text[:1] + text[:1]; strings.HasPrefix(text, triple) {
		closing := strings.Index(text[3:], triple)
		if closing < 0 {
			return "", 0
		}
		return text[3 : 3+closing], closing + 6
	}
	for i := 1; i < len(text) && text[i] != '\n'; i++ {
		switch {
		case text[i] == '\\' && text[0] == '"':
			i++
		case text[i] == text[0]:
			word = text[1:i]
			if plain, err := strconv.Unquote(text[:i+1]); err == nil && text[0] == '"' {
				word = plain
			}
			return word, i + 1
		}
	}
	return "", 0
}
