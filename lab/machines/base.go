package machines

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

//go:embed files
var files embed.FS

// basePackages make a Debian with a kernel, systemd, cloud-init and ssh. What a
// node needs besides is installed by each generic machine from the lab's repository.
var basePackages = []string{
	"linux-image-cloud-amd64", "initramfs-tools", "systemd-sysv", "udev", "dbus", "libpam-systemd", "cloud-init", "isc-dhcp-client",
	"openssh-server", "sudo", "unattended-upgrades", "iproute2", "iptables", "conntrack", "ethtool", "ca-certificates", "netbase", "kmod",
	"procps", "mount", "e2fsprogs", "python3", "curl",
}

const (
	release    = "bookworm"
	diskSize   = "3G"
	baseNeeds  = 4 << 30 // bytes while it is built
	buildPatch = "2"     // counted up when this file builds something else from the same input
)

// Base is the generic image and what belongs to it.
type Base struct {
	Disk   string // qcow2
	Kernel string
	Initrd string
	Repo   string // directory of the packages that nodes install
	root   string // the tree the disk was made from
}

// BaseOptions of BuildBase. Cache and Kubelet are required.
type BaseOptions struct {
	Cache   string // directory; images for other inputs in it are left alone
	Kubelet string // static binary
	Logger  *slog.Logger
}

// DefaultCache is below the user's cache directory, or in $KAMINO_LAB_CACHE.
func DefaultCache() (string, error) {
	if dir := os.Getenv("KAMINO_LAB_CACHE"); dir != "" {
		return dir, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find cache directory: %w; set KAMINO_LAB_CACHE", err)
	}
	return filepath.Join(dir, "kamino-lab"), nil
}

// BuildBase returns the image for this input, and builds it if the cache has
// none: minutes for Debian's part, which changes seldom, and seconds for ours.
// What is in the cache is believed only if its checksum is right: *CorruptError.
func BuildBase(ctx context.Context, o BaseOptions) (*Base, error) {
	if err := Preflight(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Cache, 0o755); err != nil {
		return nil, fmt.Errorf("make cache: %w", err)
	}
	unlock, err := lock(filepath.Join(o.Cache, ".lock"))
	if err != nil {
		return nil, err
	}
	defer unlock()
	debian, err := o.debian(ctx)
	if err != nil {
		return nil, err
	}
	return o.generic(ctx, debian)
}

// debian is a directory with Debian's tree (root) and packages (repo).
func (o BaseOptions) debian(ctx context.Context) (string, error) {
	hooks := map[string]string{}
	for _, name := range []string{"essential.sh", "customize.sh"} {
		text, err := files.ReadFile("files/" + name)
		if err != nil {
			return "", err
		}
		hooks[name] = string(text)
	}
	dir := filepath.Join(o.Cache, "debian-"+digest(release, strings.Join(basePackages, " "), hooks["essential.sh"], hooks["customize.sh"]))
	if exists(filepath.Join(dir, "done")) {
		return dir, nil
	}
	if err := room(o.Cache, baseNeeds); err != nil {
		return "", fmt.Errorf("build base image: %w", err)
	}
	if err := os.RemoveAll(dir); err != nil { // of an interrupted build
		return "", fmt.Errorf("remove unfinished base: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make directory of the base: %w", err)
	}
	began := time.Now()
	for name, text := range hooks {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			return "", fmt.Errorf("write hook: %w", err)
		}
	}
	err := command(ctx, "env", "KAMINO_LAB_REPO="+filepath.Join(dir, "repo"), "mmdebstrap", "--quiet", "--variant=minbase",
		"--include="+strings.Join(basePackages, ","),
		`--aptopt=APT::Install-Recommends "false"`, `--dpkgopt=force-unsafe-io`,
		"--essential-hook="+filepath.Join(dir, "essential.sh")+` "$1"`,
		"--customize-hook="+filepath.Join(dir, "customize.sh")+` "$1"`, release, filepath.Join(dir, "root"))
	if err != nil {
		return "", fmt.Errorf("build base image: %w", err)
	}
	o.log("Debian built", "after", time.Since(began).Round(time.Second))
	return dir, os.WriteFile(filepath.Join(dir, "done"), nil, 0o644)
}

// generic is the disk image: Debian's tree, our files, in one ext4 file system.
func (o BaseOptions) generic(ctx context.Context, debian string) (*Base, error) {
	kubelet, err := os.ReadFile(o.Kubelet)
	if err != nil {
		return nil, fmt.Errorf("read kubelet: %w", err)
	}
	ours, err := embedded()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(o.Cache, "generic-"+digest(filepath.Base(debian), string(kubelet), ours, diskSize, buildPatch))
	b := &Base{Disk: filepath.Join(dir, "disk.qcow2"), Kernel: filepath.Join(dir, "vmlinuz"), Initrd: filepath.Join(dir, "initrd.img"),
		Repo: filepath.Join(dir, "repo"), root: filepath.Join(dir, "root")}
	if exists(filepath.Join(dir, "done")) {
		return b, intact(b.Disk)
	}
	if err := room(o.Cache, baseNeeds); err != nil {
		return nil, fmt.Errorf("build base image: %w", err)
	}
	if err := os.RemoveAll(dir); err != nil {
		return nil, fmt.Errorf("remove unfinished base: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make directory of the base: %w", err)
	}
	began := time.Now()
	// Hard links: files are replaced below, never changed.
	if err := command(ctx, "cp", "-al", filepath.Join(debian, "root"), b.root); err != nil {
		return nil, err
	}
	if err := command(ctx, "cp", "-a", filepath.Join(debian, "repo"), b.Repo); err != nil {
		return nil, err
	}
	if err := b.furnish(kubelet); err != nil {
		return nil, err
	}
	if err := makeDisk(ctx, b.root, b.Disk); err != nil {
		return nil, err
	}
	if err := writeSum(b.Disk); err != nil {
		return nil, err
	}
	o.log("generic image built", "after", time.Since(began).Round(time.Second))
	return b, os.WriteFile(filepath.Join(dir, "done"), nil, 0o644)
}

// furnish puts our files into tree and repository, and the kernel beside them.
func (b *Base) furnish(kubelet []byte) error {
	if err := plant(b.root); err != nil {
		return err
	}
	unit, err := files.ReadFile("files/kubelet.service")
	if err != nil {
		return err
	}
	packages := []deb{
		{Name: "kubelet", Version: "1.36.3", Depends: "containerd", Description: "the node agent of Kubernetes",
			Files: []debFile{{"/usr/bin/kubelet", 0o755, kubelet}, {"/lib/systemd/system/kubelet.service", 0o644, unit}}},
	}
	for _, name := range Packages {
		packages = append(packages, labPackage(name, "1.0", false))
	}
	for _, d := range packages {
		if err := writeDeb(b.Repo, d); err != nil {
			return err
		}
	}
	for pattern, to := range map[string]string{"vmlinuz-*": b.Kernel, "initrd.img-*": b.Initrd} {
		found, err := filepath.Glob(filepath.Join(b.root, "boot", pattern))
		if err != nil || len(found) != 1 {
			return fmt.Errorf("find kernel: %d files match boot/%s", len(found), pattern)
		}
		if err := os.Link(found[0], to); err != nil {
			return fmt.Errorf("take kernel: %w", err)
		}
	}
	return nil
}

// Packages are what is patched on nodes.
var Packages = []string{"lab-data", "lab-library", Rebooting}

// Rebooting is the one of them whose new versions ask for a reboot, as Debian's kernel does.
const Rebooting = "lab-tool"

func labPackage(name, version string, reboot bool) deb {
	d := deb{Name: name, Version: version, Description: "something that gets patches",
		Files: []debFile{{"/usr/share/" + name + "/version", 0o644, []byte(version + "\n")}}}
	if reboot {
		d.PostInst = "#!/bin/sh\nset -e\ntouch /run/reboot-required\necho " + name + " >>/run/reboot-required.pkgs\n"
	}
	return d
}

// makeDisk makes a qcow2 of a tree, without mounting anything.
func makeDisk(ctx context.Context, tree, disk string) error {
	raw := disk + ".raw"
	defer os.Remove(raw) // a leftover costs room, nothing else
	if err := command(ctx, "mke2fs", "-q", "-t", "ext4", "-L", "root", "-m", "0", "-E", "lazy_itable_init=0,root_owner=0:0", "-d", tree,
		raw, diskSize); err != nil {
		return fmt.Errorf("make file system: %w", err)
	}
	err := whole(disk, func(temporary string) error {
		return qemuImg(ctx, "convert", "-q", "-f", "raw", "-O", "qcow2", raw, temporary)
	})
	if err != nil {
		return err
	}
	return check(ctx, disk)
}

// plant writes files/root over a tree and enables its unit.
func plant(tree string) error {
	err := fs.WalkDir(files, "files/root", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := files.ReadFile(path)
		if err != nil {
			return err
		}
		to := filepath.Join(tree, strings.TrimPrefix(path, "files/root"))
		mode := os.FileMode(0o644)
		if strings.HasPrefix(string(text), "#!") {
			mode = 0o755
		}
		return replace(to, text, mode)
	})
	if err != nil {
		return fmt.Errorf("write files of the image: %w", err)
	}
	wants := filepath.Join(tree, "etc/systemd/system/multi-user.target.wants")
	if err := os.MkdirAll(wants, 0o755); err != nil {
		return err
	}
	return os.Symlink("/etc/systemd/system/lab-extensions.service", filepath.Join(wants, "lab-extensions.service"))
}

// replace writes a file anew, so that other links of the old one keep theirs.
func replace(path string, text []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return err
	}
	if err := os.WriteFile(path, text, mode); err != nil {
		return err
	}
	return os.Chmod(path, mode) // whatever the umask
}

// embedded is everything in files, as one text to digest.
func embedded() (string, error) {
	var all strings.Builder
	err := fs.WalkDir(files, "files", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := files.ReadFile(path)
		fmt.Fprintf(&all, "%s %d\n%s", path, len(text), text)
		return err
	})
	return all.String(), err
}

func digest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d\n%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// lock waits for its turn; several labs may share a cache.
func lock(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	for {
		if err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != syscall.EINTR {
			break
		}
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { file.Close() }, nil
}

func (o BaseOptions) log(text string, args ...any) {
	if o.Logger != nil {
		o.Logger.Info(text, args...)
	}
}
