package machines

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// deb is a Debian package that the lab makes itself.
type deb struct {
	Name, Version, Depends, Description string
	Files                               []debFile
	PostInst                            string // shell; "" for none
}

type debFile struct {
	Path string // absolute
	Mode int64
	Data []byte
}

func (d deb) fileName() string { return fmt.Sprintf("%s_%s_amd64.deb", d.Name, d.Version) }

func (d deb) control() string {
	text := fmt.Sprintf("Package: %s\nVersion: %s\nArchitecture: amd64\nMaintainer: Kamino lab <lab@kamino.dev>\n", d.Name, d.Version)
	if d.Depends != "" {
		text += "Depends: " + d.Depends + "\n"
	}
	return text + "Description: " + d.Description + "\n"
}

// write makes the package: an ar archive of three members (deb(5)). No times are
// in it, so the same content gives the same package.
func (d deb) write(w io.Writer) error {
	control := []debFile{{Path: "/control", Mode: 0o644, Data: []byte(d.control())}}
	if d.PostInst != "" {
		control = append(control, debFile{Path: "/postinst", Mode: 0o755, Data: []byte(d.PostInst)})
	}
	head, err := debTar(control)
	if err != nil {
		return err
	}
	body, err := debTar(d.Files)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(w, "!<arch>\n"); err != nil {
		return err
	}
	for _, member := range []struct {
		name string
		data []byte
	}{{"debian-binary", []byte("2.0\n")}, {"control.tar.gz", head}, {"data.tar.gz", body}} {
		if _, err := fmt.Fprintf(w, "%-16s%-12d%-6d%-6d%-8s%-10d`\n", member.name, 0, 0, 0, "100644", len(member.data)); err != nil {
			return err
		}
		if len(member.data)%2 == 1 {
			member.data = append(member.data, '\n')
		}
		if _, err := w.Write(member.data); err != nil {
			return err
		}
	}
	return nil
}

func debTar(files []debFile) ([]byte, error) {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	w := tar.NewWriter(z)
	made := map[string]bool{}
	for _, f := range files {
		for _, dir := range parents(f.Path) {
			if made[dir] {
				continue
			}
			made[dir] = true
			if err := w.WriteHeader(&tar.Header{Name: "." + dir + "/", Typeflag: tar.TypeDir, Mode: 0o755,
				ModTime: time.Unix(0, 0)}); err != nil {
				return nil, err
			}
		}
		if err := w.WriteHeader(&tar.Header{Name: "." + f.Path, Typeflag: tar.TypeReg, Mode: f.Mode, Size: int64(len(f.Data)),
			ModTime: time.Unix(0, 0)}); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.Data); err != nil {
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

// parents of /a/b/c are /a and /a/b.
func parents(file string) []string {
	var dirs []string
	for dir := path.Dir(file); dir != "/" && dir != "."; dir = path.Dir(dir) {
		dirs = append(dirs, dir)
	}
	slices.Reverse(dirs)
	return dirs
}

// writeDeb puts a package into a repository's directory.
func writeDeb(dir string, d deb) error {
	var out bytes.Buffer
	if err := d.write(&out); err != nil {
		return fmt.Errorf("make package %s: %w", d.Name, err)
	}
	if err := os.WriteFile(filepath.Join(dir, d.fileName()), out.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write package: %w", err)
	}
	return nil
}

// index is the Packages file of a flat repository: of every package its control
// data, and where it is (https://wiki.debian.org/DebianRepository/Format).
func index(dir string) ([]byte, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read package: %w", err)
		}
		control, err := debControl(name)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(data)
		// Without "./" before it: Go's mux redirects to the clean path, and apt escapes what it is
		// redirected to once more.
		fmt.Fprintf(&out, "%s\nFilename: %s\nSize: %d\nSHA256: %s\n\n", strings.TrimSpace(control), filepath.Base(name), len(data),
			hex.EncodeToString(sum[:]))
	}
	return out.Bytes(), nil
}

// debControl is the control data of a package.
func debControl(file string) (string, error) {
	out, err := exec.Command("dpkg-deb", "--field", file).Output()
	if err != nil {
		return "", fmt.Errorf("read control data of %s: %w", filepath.Base(file), err)
	}
	return string(out), nil
}

// repository is a flat repository, which counts who asks it for something.
type repository struct {
	dir   string
	mu    sync.Mutex
	asked map[string]int // requests, by address
}

// ServeHTTP implements http.Handler.
func (r *repository) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	host, _, _ := strings.Cut(q.RemoteAddr, ":")
	r.mu.Lock()
	r.asked[host]++
	r.mu.Unlock()
	if path.Clean(q.URL.Path) != "/Packages" { // apt asks for /./Packages
		http.FileServer(http.Dir(r.dir)).ServeHTTP(w, q)
		return
	}
	text, err := index(r.dir)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(text) // the guest may have gone away
}

// requests so far: by address, and of all.
func (r *repository) requests(address string) (its, all int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.asked {
		all += n
	}
	return r.asked[address], all
}
