// Package treefile keeps a tree of files on one page, for tests: a txtar archive, with what txtar alone
// cannot hold written behind a file's name.
//
//	-- NAME --               a text that is empty or ends with a newline
//	-- NAME (no newline) --  a text whose last line has no newline
//	-- NAME (gzip) --        any bytes: compressed, in base64
//	-- NAME -> TARGET --     a symbolic link
//
// Modes, empty folders and times are not kept: folders are unpacked as 0755, files as 0644.
package treefile

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/tools/txtar"
)

const (
	noNewline  = " (no newline)"
	compressed = " (gzip)"
	arrow      = " -> "
	columns    = 100 // of base64
)

// Tree is what one archive holds: a comment, and files by their names.
type Tree struct {
	Comment string
	Files   []File
}

// File is a regular file, or a symbolic link if it has a target.
type File struct {
	Name    string // relative to the tree, with slashes
	Content string
	Target  string
}

// Read reads the archive at path.
func Read(path string) (Tree, error) {
	a, err := txtar.ParseFile(path)
	if err != nil {
		return Tree{}, err
	}
	t := Tree{Comment: string(a.Comment)}
	for _, f := range a.Files {
		decoded, err := decode(f)
		if err != nil {
			return Tree{}, fmt.Errorf("%s: %s: %w", path, f.Name, err)
		}
		t.Files = append(t.Files, decoded)
	}
	return t, nil
}

// Write writes the archive at path, with the files sorted by name.
func (t Tree) Write(path string) error {
	a := &txtar.Archive{Comment: []byte(t.Comment)}
	for _, f := range slices.SortedFunc(slices.Values(t.Files), func(a, b File) int { return strings.Compare(a.Name, b.Name) }) {
		encoded, err := encode(f)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", path, f.Name, err)
		}
		a.Files = append(a.Files, encoded)
	}
	return os.WriteFile(path, txtar.Format(a), 0o644)
}

// Below is the part of the tree in a folder, with names relative to it.
func (t Tree) Below(folder string) Tree {
	var part Tree
	for _, f := range t.Files {
		if name, in := strings.CutPrefix(f.Name, folder+"/"); in {
			f.Name = name
			part.Files = append(part.Files, f)
		}
	}
	return part
}

// Text is the content of a file, "" if the tree does not have it.
func (t Tree) Text(name string) string { return t.Texts()[name] }

// Texts are the contents of all files by name.
func (t Tree) Texts() map[string]string {
	texts := map[string]string{}
	for _, f := range t.Files {
		texts[f.Name] = f.Content
	}
	return texts
}

// Unpack lays the tree over the folder at dir. It replaces files and links that are there already.
func (t Tree) Unpack(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, f := range t.Files {
		at := filepath.Join(dir, filepath.FromSlash(f.Name))
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		if err := os.Remove(at); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		var err error
		if f.Target != "" {
			err = os.Symlink(f.Target, at)
		} else {
			err = os.WriteFile(at, []byte(f.Content), 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func decode(f txtar.File) (File, error) {
	if name, target, link := strings.Cut(f.Name, arrow); link {
		return File{Name: name, Target: target}, nil
	}
	if name, is := strings.CutSuffix(f.Name, noNewline); is {
		return File{Name: name, Content: strings.TrimSuffix(string(f.Data), "\n")}, nil
	}
	name, is := strings.CutSuffix(f.Name, compressed)
	if !is {
		return File{Name: name, Content: string(f.Data)}, nil
	}
	r, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, bytes.NewReader(f.Data)))
	if err != nil {
		return File{}, err
	}
	content, err := io.ReadAll(r)
	return File{Name: name, Content: string(content)}, err
}

func encode(f File) (txtar.File, error) {
	switch {
	case f.Target != "":
		return txtar.File{Name: f.Name + arrow + f.Target}, nil
	case !plain(f.Content):
		data, err := compress(f.Content)
		return txtar.File{Name: f.Name + compressed, Data: data}, err
	case f.Content != "" && !strings.HasSuffix(f.Content, "\n"):
		return txtar.File{Name: f.Name + noNewline, Data: []byte(f.Content + "\n")}, nil
	}
	return txtar.File{Name: f.Name, Data: []byte(f.Content)}, nil
}

// plain texts stand in an archive as they are: no line of them looks like a file's name.
func plain(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsAny(text, "\x00\r") && len(txtar.Parse([]byte(text)).Files) == 0
}

func compress(text string) ([]byte, error) {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := io.WriteString(w, text)
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, err
	}
	var lines []byte
	for line := range slices.Chunk([]byte(base64.StdEncoding.EncodeToString(b.Bytes())), columns) {
		lines = append(append(lines, line...), '\n')
	}
	return lines, nil
}
