package inventory

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino/agent/disk"
)

// tree is a disk of the files given: "link:TARGET" makes a link. All are an hour old in mtime;
// ctime cannot be set, so tests of the second look say so (age).
func tree(t *testing.T, files map[string]string) *disk.Disk {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		put(t, root, name, text)
	}
	d, err := disk.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func put(t *testing.T, root, name, text string) {
	t.Helper()
	at := filepath.Join(root, name)
	err := os.MkdirAll(filepath.Dir(at), 0o755)
	if target, ok := strings.CutPrefix(text, "link:"); ok {
		err = errors.Join(err, os.Symlink(target, at))
	} else {
		err = errors.Join(err, os.WriteFile(at, []byte(text), 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func sum(text string) string {
	s := md5.Sum([]byte(text))
	return hex.EncodeToString(s[:])
}

func looked(t *testing.T, d *disk.Disk, o Options) *Result {
	t.Helper()
	r, err := Look(t.Context(), d, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func names(files []File) (out []string) {
	for _, f := range files {
		out = append(out, f.Path)
	}
	return out
}

// debian is a dpkg system: one package with a program, a library under the merged /usr, a
// configuration file, and a diverted file.
func debian() map[string]string {
	return map[string]string{
		"bin":                             "link:usr/bin",
		"usr/bin/tool":                    "program\n",
		"usr/bin/sh.distrib":              "diverted\n",
		"usr/share/tool/dot.profile":      "profile\n",
		"etc/tool.conf":                   "setting\n",
		"var/lib/dpkg/info/tool.list":     "/.\n/bin\n/bin/tool\n/etc/tool.conf\n/usr/share/tool/dot.profile\n/bin/sh\n/usr/lib/tool/dangling\n",
		"var/lib/dpkg/info/tool.md5sums":  sum("program\n") + "  bin/tool\n" + sum("profile\n") + "  usr/share/tool/dot.profile\n" + sum("diverted\n") + "  bin/sh\n",
		"var/lib/dpkg/status":             "Package: tool\nConffiles:\n /etc/tool.conf " + sum("setting\n") + "\nDescription: x\n",
		"var/lib/dpkg/diversions":         "/bin/sh\n/bin/sh.distrib\nother\n",
		"usr/lib/tool/dangling":           "link:nowhere",
		"etc/systemd/system/mask.service": "link:/dev/null",
	}
}

func TestOwned(t *testing.T) {
	r := looked(t, tree(t, debian()), Options{})
	if len(r.Unknown) > 0 {
		t.Errorf("unknown: %v", r.Unknown)
	}
	if got := r.Counts[Owned].Files; got != 5 {
		t.Errorf("%d files are owned, want 5: %s", got, r.Summary())
	}
	for _, c := range []struct{ name, text, why string }{
		{"usr/bin/tool", "another program\n", "changed since"},
		{"etc/tool.conf", "password = hunter2\n", "changed since"},
		{"etc/tool.d/extra.conf", "password = hunter2\n", "no package's"},
		{"usr/lib/tool/other", "link:nowhere", "leads nowhere"},
		{"etc/group", "x:hash:1:\n", "expected: accounts"},
		{"etc/fstab", "//server/share /mnt cifs username=u,password=p 0 0\n", "expected: local file systems"},
		{"etc/ssl/certs/ca-certificates.crt", "-----BEGIN CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----\n", "expected: the certificates"},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := debian()
			files[c.name] = c.text
			r := looked(t, tree(t, files), Options{})
			if !slices.Equal(names(r.Unknown), []string{c.name}) || !strings.Contains(r.Unknown[0].Why, c.why) {
				t.Errorf("%s: unknown is %v, want it, %s", c.name, r.Unknown, c.why)
			}
		})
	}
	for name, text := range map[string]string{
		"home/u/.profile":                   "profile\n", // a copy of what a package ships
		"etc/empty":                         "",
		"etc/group":                         "x:x:1:\ny::2:\n",
		"etc/ssl/certs/ca-certificates.crt": "# ISRG\n-----BEGIN CERTIFICATE-----\nMII=\n-----END CERTIFICATE-----\n",
		"etc/hosts":                         "127.0.0.1 localhost\nff02::1 ip6-allnodes\n",
	} {
		t.Run(name, func(t *testing.T) {
			files := debian()
			files[name] = text
			if r := looked(t, tree(t, files), Options{}); len(r.Unknown) > 0 {
				t.Errorf("%s: unknown: %v", name, r.Unknown)
			}
		})
	}
}

// await waits until all files are so old that a look keeps them: what is younger counts as changed.
func await(t *testing.T, d *disk.Disk) {
	t.Helper()
	for time.Since(newest(t, d)) <= racy {
		time.Sleep(racy / 10) // the file system's clock goes on by itself
	}
}

// TestSecondLook: what did not change is not read again, and what did is.
func TestSecondLook(t *testing.T) {
	files := debian()
	files["srv/app/data"], files["etc/edited"] = "data\n", "host = donor\n"
	d := tree(t, files)
	o := Options{Becomes: map[string][]byte{"etc/edited": []byte("host =\n")}, Agent: "1"}
	await(t, d)
	first := looked(t, d, o)
	var saved bytes.Buffer
	if err := first.Index.Write(&saved); err != nil {
		t.Fatal(err)
	}
	index, err := ReadIndex(saved.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	again := looked(t, d, Options{Earlier: index, Agent: "1"})
	if again.Read != 0 || !slices.Equal(again.Unknown, first.Unknown) && len(again.Unknown) != 2 {
		t.Errorf("the second look read %d files and found %v; the first found %v", again.Read, again.Unknown, first.Unknown)
	}
	if other := looked(t, d, Options{Earlier: index, Agent: "2"}); other.Read == 0 {
		t.Error("an index of another version was used")
	}
	put(t, d.Dir(), "srv/app/data", "DATA\n")
	put(t, d.Dir(), "usr/bin/tool", "PROGRAM\n")
	put(t, d.Dir(), "etc/edited", "host =\n")
	last := looked(t, d, Options{Earlier: index, Agent: "1"})
	if want := []string{"etc/edited", "srv/app/data", "usr/bin/tool"}; !slices.Equal(names(last.Unknown), want) || last.Read != 3 {
		t.Errorf("after three changes the look read %d files and found %v, want %v", last.Read, last.Unknown, want)
	}
	if last.Unknown[0].Digest != first.Unknown[0].Digest {
		t.Errorf("edited: digest %s, foretold %s", last.Unknown[0].Digest, first.Unknown[0].Digest)
	}
	if _, err := ReadIndex(saved.Bytes()[:saved.Len()-1]); err == nil {
		t.Error("an index that is cut short was read")
	}
}

func newest(t *testing.T, d *disk.Disk) time.Time {
	t.Helper()
	info, err := os.Stat(d.Dir()) // the last file was made after it, and within moments
	if err != nil {
		t.Fatal(err)
	}
	return info.ModTime()
}

// TestAllow: what was written for review allows exactly what was there.
func TestAllow(t *testing.T) {
	files := debian()
	files["etc/own.conf"], files["etc/odd [name]*"] = "x\n", "y\n"
	for i := range 40 {
		files[fmt.Sprintf("srv/app/%d/data", i)] = fmt.Sprint(i)
	}
	first := looked(t, tree(t, files), Options{})
	known := entries(t, first)
	if len(known) != 3 {
		t.Fatalf("%d entries, want one for each file and one for the tree: %v", len(known), known)
	}
	if r := looked(t, tree(t, files), Options{Known: known}); len(r.Unknown) > 0 || r.Counts[Allowed].Files != 42 || len(r.Unexplained) != 42 {
		t.Errorf("allowed %d, unknown %v", r.Counts[Allowed].Files, r.Unknown)
	}
	for name, text := range map[string]string{"etc/own.conf": "z\n", "etc/odd [name]*": "z\n", "etc/oddn": "y\n", "etc/own.conf2": "x\n", "srv/app/7/data": "8", "srv/app/7/more": "9"} {
		t.Run(name, func(t *testing.T) {
			changed := map[string]string{name: text}
			for n, v := range files {
				if n != name {
					changed[n] = v
				}
			}
			if r := looked(t, tree(t, changed), Options{Known: known}); !slices.Contains(names(r.Unknown), name) {
				t.Errorf("%s with %q is allowed by an entry for something else", name, text)
			}
		})
	}
}

// entries reads back what WriteAllow wrote, with the one YAML form that it uses.
func entries(t *testing.T, r *Result) (out []Known) {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteAllow(&b); err != nil {
		t.Fatal(err)
	}
	out = parseKnown(t, b.Bytes())
	for _, k := range out {
		if err := k.Validate(); err != nil {
			t.Errorf("%+v: %v", k, err)
		}
	}
	return out
}
