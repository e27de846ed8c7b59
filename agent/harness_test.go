package agent_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"kamino.dev/kamino/internal/treefile"
)

// fakePlatform is IMDS, WireServer and kubelet's health endpoint of one machine, from the texts of a folder:
//
//	instance.json   the instance document
//	instance-id     the instance, where the machine is one of EC2
//	userdata        the user data, not yet in base64; userdata.base64 is sent as it is
//	goalstate.xml   the goal state (a plain one if it is missing)
//	status          lines "PATH PREFIX CODE [TIMES]": answers other than 200
//	kubelet         "NAME TEXT": kubelet is not healthy while that file of the root contains the text
type fakePlatform struct {
	url  string
	mu   sync.Mutex
	text map[string]string
	gone bool
	log  []string
	used map[string]int
	root string
	hold chan struct{} // the WireServer answers when it is closed; nil: at once
}

func servePlatform(t *testing.T, text map[string]string) *fakePlatform {
	p := &fakePlatform{text: text, used: map[string]int{}}
	s := httptest.NewServer(p)
	t.Cleanup(s.Close)
	p.url = s.URL
	return p
}

func (p *fakePlatform) answerFrom(text map[string]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text, p.gone, p.used = text, false, map[string]int{}
}

// serve replaces one text.
func (p *fakePlatform) serve(name, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text[name] = text
}

// leave makes every request fail until the platform answers from another folder.
func (p *fakePlatform) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = true
}

// said has what the agent reported, each report with a line for its request.
func (p *fakePlatform) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.log, "")
}

func (p *fakePlatform) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log, p.used = nil, map[string]int{}
}

func (p *fakePlatform) file(name string) (string, bool) {
	text, ok := p.text[name]
	return text, ok
}

const plainGoalState = `<?xml version="1.0" encoding="utf-8"?><GoalState><Version>2012-11-30</Version><Incarnation>1</Incarnation><Container><ContainerId>c-1</ContainerId>` +
	`<RoleInstanceList><RoleInstance><InstanceId>r-1</InstanceId></RoleInstance></RoleInstanceList></Container></GoalState>`

func (p *fakePlatform) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	hold := p.hold
	p.mu.Unlock()
	if hold != nil && strings.HasPrefix(r.URL.RawQuery, "comp=") {
		<-hold
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if code := p.refusal(r.URL.RequestURI()); code != 0 {
		http.Error(w, `{"error":"told to"}`, code)
		return
	}
	text, ok := "", true
	switch at := r.URL.Path; {
	case strings.HasPrefix(at, "/metadata/") && r.Header.Get("Metadata") != "true":
		http.Error(w, "no Metadata header", http.StatusBadRequest)
		return
	case at == "/metadata/instance":
		text, ok = p.file("instance.json")
	case at == "/metadata/instance/compute/userData":
		if text, ok = p.file("userdata.base64"); !ok {
			plain, _ := p.file("userdata")
			text, ok = base64.StdEncoding.EncodeToString([]byte(plain)), true
		}
	case strings.HasPrefix(at, "/latest/"):
		text, ok = p.ec2(w, r)
		if !ok && w.Header().Get("X-Refused") != "" {
			return
		}
	case at == "/healthz":
		text, ok = p.health()
	case r.URL.RawQuery == "comp=versions":
		text = "<Versions><Supported><Version>2012-11-30</Version></Supported></Versions>"
	case r.URL.RawQuery == "comp=goalstate":
		if text, ok = p.file("goalstate.xml"); !ok {
			text, ok = plainGoalState, true
		}
	case r.URL.RawQuery == "comp=health", at == "/provisioning/health":
		body, _ := io.ReadAll(r.Body)
		p.log = append(p.log, fmt.Sprintf("%s %s\n%s\n", r.Method, r.URL.RequestURI(), strings.TrimSpace(string(body))))
	default:
		ok = false
	}
	if !ok {
		http.NotFound(w, r)
		return
	}
	_, _ = io.WriteString(w, text) // the agent may have been killed
}

// ec2Token is the session's: version 1 of the service, without one, is switched off.
const ec2Token = "AQAEAsession=="

// ec2 answers as the metadata service of EC2; the user data there is not in base64.
func (p *fakePlatform) ec2(w http.ResponseWriter, r *http.Request) (string, bool) {
	at := r.URL.Path
	if at == "/latest/api/token" {
		if r.Method != http.MethodPut || r.Header.Get("X-Aws-Ec2-Metadata-Token-Ttl-Seconds") == "" || r.Header.Get("X-Forwarded-For") != "" {
			w.Header().Set("X-Refused", "1")
			http.Error(w, "bad request", http.StatusBadRequest)
			return "", false
		}
		return ec2Token, true
	}
	if r.Header.Get("X-Aws-Ec2-Metadata-Token") != ec2Token {
		w.Header().Set("X-Refused", "1")
		http.Error(w, "unauthorized", http.StatusUnauthorized)
		return "", false
	}
	switch at {
	case "/latest/meta-data/instance-id":
		return p.file("instance-id")
	case "/latest/user-data":
		return p.file("userdata")
	}
	return "", false
}

func (p *fakePlatform) refusal(uri string) int {
	if p.gone {
		return http.StatusServiceUnavailable
	}
	lines, _ := p.file("status")
	for line := range strings.Lines(lines) {
		field := strings.Fields(line)
		if len(field) < 2 || !strings.HasPrefix(uri, field[0]) {
			continue
		}
		times := -1
		if len(field) > 2 {
			times, _ = strconv.Atoi(field[2])
		}
		if times >= 0 && p.used[line] >= times {
			continue
		}
		p.used[line]++
		code, _ := strconv.Atoi(field[1])
		return code
	}
	return 0
}

func (p *fakePlatform) health() (string, bool) {
	text, _ := p.file("kubelet")
	name, bad, _ := strings.Cut(strings.TrimSpace(text), " ")
	data, err := os.ReadFile(filepath.Join(p.root, name))
	return "ok", bad == "" || err == nil && !strings.Contains(string(data), bad)
}

// smbios makes the root show a machine: its UUID, and on EC2 the instance.
func (w *world) smbios(machine []string) {
	w.t.Helper()
	dmi := filepath.Join(w.root, "sys/class/dmi/id")
	writeFile(w.t, filepath.Join(dmi, "product_uuid"), machine[0]+"\n")
	if len(machine) > 1 {
		writeFile(w.t, filepath.Join(dmi, "sys_vendor"), "Amazon EC2\n")
		writeFile(w.t, filepath.Join(dmi, "board_asset_tag"), machine[1]+"\n")
	}
}

func (w *world) prepare(op []string) {
	w.t.Helper()
	name := filepath.Join(w.root, op[1])
	var err error
	switch op[0] {
	case "link":
		err = errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.RemoveAll(name), os.Symlink(strings.ReplaceAll(op[2], "<TMP>", filepath.Dir(w.root)), name))
	case "dir":
		err = os.MkdirAll(name, 0o755)
	case "mode":
		mode, perr := strconv.ParseUint(op[2], 8, 32)
		err = errors.Join(perr, os.Chmod(name, fs.FileMode(mode)))
	case "remove":
		err = os.RemoveAll(name)
	case "fill":
		size, perr := strconv.Atoi(op[2])
		err = errors.Join(perr, os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, make([]byte, max(size, 0)), 0o600))
	case "outside": // a file beside the root, which nothing may touch
		err = os.WriteFile(filepath.Join(filepath.Dir(w.root), op[1]), []byte("outside\n"), 0o644)
	default:
		err = fmt.Errorf("prepare: what is %q?", op[0])
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// mount makes a part of the root its own file system.
func (w *world) mount(op []string) {
	w.t.Helper()
	if os.Geteuid() != 0 {
		w.t.Skip("mounting needs root")
	}
	name := filepath.Join(w.root, op[1])
	var err error
	switch op[0] {
	case "readonly":
		if err = syscall.Mount(name, name, "", syscall.MS_BIND, ""); err == nil {
			w.t.Cleanup(func() { _ = syscall.Unmount(name, syscall.MNT_DETACH) })
			err = syscall.Mount("", name, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, "")
		}
	case "full": // the whole root in a file system of its own, with so many bytes free
		aside, image := w.root+".disk", w.root+".img"
		err = errors.Join(os.Rename(w.root, aside), os.Mkdir(w.root, 0o755), os.WriteFile(image, nil, 0o600), os.Truncate(image, 16<<20))
		for _, c := range [][]string{{"mke2fs", "-q", "-F", "-t", "ext4", "-b", "1024", "-m", "0", image}, {"mount", "-o", "loop", image, w.root}} {
			if out, cerr := exec.Command(c[0], c[1:]...).CombinedOutput(); cerr != nil {
				w.t.Skipf("no file system of its own here: %v: %s", cerr, out)
			}
		}
		w.t.Cleanup(func() { _ = syscall.Unmount(w.root, 0) })
		copyTree(w.t, aside, w.root)
		free, perr := strconv.Atoi(op[2])
		err = errors.Join(err, perr, os.Remove(filepath.Join(w.root, "lost+found")), fillUntil(w.root, int64(free)))
	default:
		err = fmt.Errorf("mount: what is %q?", op[0])
	}
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) {
		w.t.Skipf("mounting is not allowed here: %v", err)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// fillUntil writes a file until so many bytes are free on the file system at dir.
func fillUntil(dir string, free int64) error {
	f, err := os.Create(filepath.Join(dir, "ballast"))
	if err != nil {
		return err
	}
	defer f.Close()
	for size, tries := int64(0), 0; tries < 8; tries++ {
		var fs syscall.Statfs_t
		if err := errors.Join(f.Sync(), syscall.Statfs(dir, &fs)); err != nil {
			return err
		}
		left := int64(fs.Bfree)*fs.Bsize - free
		if left == 0 {
			return nil
		}
		if left > 0 {
			_, err = f.WriteAt(make([]byte, left), size)
		} else {
			err = f.Truncate(size + left)
		}
		if size += left; err != nil {
			return err
		}
	}
	return fmt.Errorf("%s does not come to %d free bytes", dir, free)
}

// entry is one file of a tree; describes what a reader of the tree sees of it.
type entry struct {
	kind, content string
	mode          fs.FileMode
	modified      int64
	size          int64
}

func (e entry) String() string { return fmt.Sprintf("%s %04o", e.kind, e.mode.Perm()) }

// interesting files have their content in want: what is new or changed and can be read.
func (e entry) interesting(former entry) bool {
	return e.kind == "file" && e.size > 0 && e.size < 1<<20 && e.content != former.content
}

func listTree(t *testing.T, root string) map[string]entry {
	t.Helper()
	all := map[string]entry{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, name)
		e := entry{mode: info.Mode(), modified: info.ModTime().UnixNano(), size: info.Size()}
		switch {
		case d.IsDir():
			e.kind, e.modified, e.size = "dir", 0, 0
		case info.Mode()&fs.ModeSymlink != 0:
			e.content, err = os.Readlink(name)
			e.kind, e.mode = "link to "+e.content, 0o777
		case info.Mode().IsRegular():
			var data []byte
			data, err = os.ReadFile(name)
			e.kind, e.content = "file", string(data)
		default:
			e.kind = "special"
		}
		all[rel] = e
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// generated replaces what is random in files that the agent makes.
func generated(text string) string {
	if ownHex.MatchString(text) {
		return "<MACHINE-ID>\n"
	}
	if strings.Contains(text, "OPENSSH PRIVATE KEY") {
		return "<SSH KEY>\n"
	}
	text = hostKey.ReplaceAllString(text, "$1 <SSH KEY>\n")
	text = initiator.ReplaceAllString(text, "$1<RANDOM>")
	return randomUUID.ReplaceAllString(text, "<RANDOM UUID>")
}

var (
	ownHex     = regexp.MustCompile(`^[0-9a-f]{32}\n$`)
	hostKey    = regexp.MustCompile(`^(ssh-ed25519|ecdsa-sha2-nistp256) \S+\n$`)
	initiator  = regexp.MustCompile(`(iqn\.1993-08\.org\.debian:01:)[0-9a-f]{12}`)
	randomUUID = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-a[0-9a-f]{3}-[0-9a-f]{12}`)
)

// diffTrees says line by line what went (-), came (+) and changed (*).
func diffTrees(before, after map[string]entry) string {
	var lines []string
	for name, e := range after {
		former, was := before[name]
		switch {
		case !was:
			lines = append(lines, fmt.Sprintf("%s + %s", name, e))
		case former.String() != e.String():
			lines = append(lines, fmt.Sprintf("%s * %s, was %s", name, e, former))
		case former.content != e.content:
			lines = append(lines, fmt.Sprintf("%s * content", name))
		}
	}
	for name, e := range before {
		if _, is := after[name]; !is {
			lines = append(lines, fmt.Sprintf("%s - %s", name, e.kind))
		}
	}
	slices.Sort(lines)
	if len(lines) == 0 {
		return ""
	}
	return strings.Join(lines, "\n") + "\n"
}

// archives are the names of the archives in a folder.
func archives(t *testing.T, dir string) (names []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		names = append(names, strings.TrimSuffix(filepath.Base(path), ".txtar"))
	}
	return names
}

func readTree(t testing.TB, path string) treefile.Tree {
	t.Helper()
	tree, err := treefile.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func unpack(t *testing.T, tree treefile.Tree, root string) {
	t.Helper()
	if err := tree.Unpack(root); err != nil {
		t.Fatal(err)
	}
}

// unpackBase makes a root of a base tree.
func unpackBase(t *testing.T, base, root string) {
	t.Helper()
	unpack(t, readTree(t, filepath.Join("testdata/bases", base+".txtar")), root)
}

func copyTree(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(from, name)
		at := filepath.Join(to, rel)
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			return os.MkdirAll(at, 0o755)
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(name)
			if err != nil {
				return err
			}
			_ = os.Remove(at)
			return os.Symlink(target, at)
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		// git stores no modes, so every tree starts alike.
		_ = os.Remove(at)
		return os.WriteFile(at, data, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// inMemory is a temporary directory where fsync costs nothing, if the machine has one.
func inMemory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "kamino-agent-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}
