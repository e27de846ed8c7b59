// Package roots says where the kubelets and container runtimes of a disk keep their state: in their
// usual directories, and in the directories that the disk's own configuration names.
package roots

import (
	"path"
	"slices"
	"strings"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/internal/lazyregexp"
)

// Roots are directories of one disk, relative to its root and without links. The first of each is
// the usual one, which need not exist; the others do.
type Roots struct {
	Kubelet    []string
	Containerd []string
	Docker     []string
	Storage    []string // of CRI-O, podman and buildah
}

// The usual directories, and the directories of distributions of Kubernetes.
const (
	kubelet    = "var/lib/kubelet"
	containerd = "var/lib/containerd"
	docker     = "var/lib/docker"
	storage    = "var/lib/containers/storage"

	dockersContainerd = "containerd/daemon" // below docker's root
)

var (
	usualKubelet    = []string{kubelet, "var/lib/k0s/kubelet", "var/snap/microk8s/common/var/lib/kubelet"}
	usualContainerd = []string{containerd, "var/lib/rancher/k3s/agent/containerd", "var/lib/rancher/rke2/agent/containerd",
		"var/lib/k0s/containerd", "var/snap/microk8s/common/var/lib/containerd"}
	usualDocker  = []string{docker, "var/snap/docker/common/var-lib-docker"}
	usualStorage = []string{storage}
)

// Files that may name a root, besides the units of the programs.
var configurations = []string{
	"etc/default/*", "etc/sysconfig/*", "etc/kubernetes/kubelet*", "etc/kubernetes/*.env", "etc/eks/kubelet/*",
	kubelet + "/kubeadm-flags.env",
	"etc/rancher/*/config.yaml", "etc/rancher/*/config.yaml.d/*", "etc/rancher/*/*.env", "etc/k0s/*", "var/snap/microk8s/current/args/*",
	"etc/containerd/*.toml", "etc/containerd/conf.d/*.toml", "etc/docker/daemon.json", "var/snap/docker/current/config/daemon.json",
	"etc/containers/storage.conf", "etc/containers/storage.conf.d/*", "usr/share/containers/storage.conf", "etc/crio/crio.conf",
	"etc/crio/crio.conf.d/*",
}

var (
	unitDirs = []string{"etc/systemd/system", "run/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system",
		"lib/systemd/system"}
	programs = lazyregexp.New(`kubelet|k3s|rke2|k0s|containerd|docker|cri-?o|podman`)
	// What a unit reads or runs, whose text may name a root.
	unitFiles  = lazyregexp.New(`(?m)^\s*(?:EnvironmentFile=-?|Exec[A-Za-z]*=[-@:+!]*)(/[^\s"']+)`)
	configFlag = lazyregexp.New(`--config(?:=|\s+)["']?(/[^\s"',\]\\]+)`)

	kubeletRoot = lazyregexp.New(`\b(?:kubelet-)?root-dir["']?\s*[=:\s]\s*["']?(/[^\s"',\]\\]+)`)
	dataDir     = lazyregexp.New(`(?i)\bdata[-_]dir["']?\s*[=:\s]\s*["']?(/[^\s"',\]\\]+)`)
	dockerRoot  = lazyregexp.New(`(?:\bdata-root|"graph|--graph|\s-g)["']?\s*[=:\s]\s*["']?(/[^\s"',\]\\]+)`)
	rootFlag    = lazyregexp.New(`--root(?:=|\s+)["']?(/[^\s"',\]\\]+)`)
	tomlRoot    = lazyregexp.New(`(?m)^[ \t]*(?:graph)?root[ \t]*=[ \t]*["'](/[^"'\n]+)["']`)
)

// Of reads the roots of a disk. What cannot be read names none.
func Of(d *disk.Disk) Roots {
	r := reader{disk: d}
	all := Roots{Kubelet: slices.Clone(usualKubelet), Containerd: slices.Clone(usualContainerd), Docker: slices.Clone(usualDocker),
		Storage: slices.Clone(usualStorage)}
	r.configured(&all)
	for _, dir := range all.Docker {
		all.Containerd = append(all.Containerd, path.Join(dir, dockersContainerd))
	}
	for _, list := range []*[]string{&all.Kubelet, &all.Containerd, &all.Docker, &all.Storage} {
		*list = r.there(*list)
	}
	return all
}

type reader struct {
	disk *disk.Disk
	seen map[string]bool
}

// configured adds what configuration names.
func (r *reader) configured(all *Roots) {
	r.seen = map[string]bool{}
	for _, pattern := range configurations {
		for _, name := range r.glob(pattern) {
			r.read(name, "", all)
		}
	}
	for _, dir := range unitDirs {
		for _, name := range slices.Concat(r.glob(dir+"/*.service"), r.glob(dir+"/*.service.d/*.conf")) {
			if programs.MatchString(strings.TrimPrefix(name, dir)) {
				r.read(name, "", all)
			}
		}
	}
}

func (r *reader) glob(pattern string) []string {
	names, err := r.disk.Glob(pattern)
	if err != nil {
		return nil
	}
	return names
}

// read takes the roots from one file, and goes on with the files that a unit names. program is the
// one for which it was named.
func (r *reader) read(name, program string, all *Roots) {
	const most = 256 << 10 // none of these is as large; programs are
	if r.seen[name] {
		return
	}
	r.seen[name] = true
	data, err := r.disk.ReadFile(name, most)
	if err != nil || strings.HasPrefix(string(data), "\x7fELF") {
		return
	}
	var lines strings.Builder
	for line := range strings.Lines(strings.ReplaceAll(string(data), "\\\n", " ")) {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") {
			lines.WriteString(line)
		}
	}
	text := lines.String()
	if program == "" {
		program = programs.FindString(name)
	}
	add := func(to *[]string, re *lazyregexp.Regexp, below ...string) {
		for _, m := range re.FindAllStringSubmatch(text, -1) {
			for _, b := range below {
				*to = append(*to, path.Join(m[1], b)[1:])
			}
		}
	}
	add(&all.Kubelet, kubeletRoot, "")
	add(&all.Docker, dockerRoot, "")
	switch {
	case program == "k3s" || program == "rke2" || program == "k0s" || disk.Under(name, "etc/rancher"):
		add(&all.Containerd, dataDir, "agent/containerd", "containerd")
		add(&all.Kubelet, dataDir, "kubelet")
	case program == "containerd" && path.Ext(name) == ".toml":
		add(&all.Containerd, tomlRoot, "")
	case program == "containerd":
		add(&all.Containerd, rootFlag, "")
		for _, m := range configFlag.FindAllStringSubmatch(text, -1) {
			r.read(m[1][1:], program, all)
		}
	case disk.Under(name, "etc/containers"), disk.Under(name, "etc/crio"), disk.Under(name, "usr/share/containers"):
		add(&all.Storage, tomlRoot, "")
	case program != "docker" && program != "kubelet" && program != "":
		add(&all.Storage, rootFlag, "")
	}
	if ext := path.Ext(name); ext == ".service" || ext == ".conf" {
		for _, m := range unitFiles.FindAllStringSubmatch(text, -1) {
			r.read(m[1][1:], program, all)
		}
	}
}

// software is where no program keeps its state.
var software = []string{"usr", "bin", "sbin", "lib", "lib64", "etc", "boot", "efi", "dev", "proc", "sys", "run",
	"opt/kamino", "var/lib/kamino"}

// there returns the first directory, and each further directory that exists: once, and without
// links. It leaves out a directory that holds directories of other programs, because rules empty
// what it returns.
func (r *reader) there(dirs []string) (out []string) {
	for i, dir := range dirs {
		at, err := r.disk.Follow(dir)
		if i == 0 {
			out = append(out, dir)
		}
		if err != nil || slices.Contains(out, at) || slices.ContainsFunc(software, func(s string) bool { return disk.Under(at, s) }) {
			continue
		}
		if slices.ContainsFunc([]string{kubelet, "home/x", "opt/x", "root/x"},
			func(s string) bool { return s != at && disk.Under(s, at) }) {
			continue
		}
		if info, err := r.disk.Lstat(at); err == nil && info.IsDir() {
			out = append(out, at)
		}
	}
	return out
}

// lists are the roots with their usual directories first.
func (r Roots) lists() [][]string { return [][]string{r.Containerd, r.Docker, r.Kubelet, r.Storage} }

// Expand adds to patterns below a usual directory the same below the others. Patterns may begin
// with a slash.
func (r Roots) Expand(patterns []string) []string {
	out := slices.Clone(patterns)
	for _, p := range patterns {
		slash := strings.HasPrefix(p, "/")
		for _, list := range r.lists() {
			if len(list) < 2 || !disk.Under(strings.TrimPrefix(p, "/"), list[0]) {
				continue
			}
			rest := strings.TrimPrefix(strings.TrimPrefix(p, "/"), list[0])
			for _, other := range list[1:] {
				name := literal.Replace(other) + rest
				if slash {
					name = "/" + name
				}
				out = append(out, name)
			}
		}
	}
	return out
}

// literal makes a pattern of path.Match that matches one name only.
var literal = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// Usual is the name that a file would have if its root were the usual one.
func (r Roots) Usual(name string) string {
	best, usual := "", ""
	for _, list := range r.lists() {
		if len(list) < 2 {
			continue
		}
		for _, root := range list[1:] {
			if len(root) > len(best) && strings.HasPrefix(name, root) && (len(name) == len(root) || name[len(root)] == '/') {
				best, usual = root, list[0]
			}
		}
	}
	if best == "" {
		return name
	}
	return usual + name[len(best):]
}
