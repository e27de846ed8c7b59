package patch

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"kamino.dev/kamino/agent/disk"
)

// tree is a root directory with a package database of its own, and a repository in a directory:
// apt-get, dpkg and dnf of this machine work on it.
type tree struct {
	t    *testing.T
	root string
	repo string
	env  []string
	ran  []string
}

func write(t *testing.T, name, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func tool(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

func needs(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("needs %s: %v", p, err)
		}
	}
}

func newTree(t *testing.T, ids ...string) *tree {
	t.Helper()
	tr := &tree{t: t, root: t.TempDir(), repo: t.TempDir()}
	write(t, tr.root+"/proc/sys/kernel/osrelease", "6.1.0-30-amd64\n", 0o644)
	write(t, tr.root+"/proc/sys/kernel/random/boot_id", "boot-1\n", 0o644)
	for _, id := range ids {
		write(t, tr.root+"/usr/bin/"+id, "", 0o755)
	}
	return tr
}

// node works on the tree; systemctl is not run.
func (tr *tree) node() Node {
	d, err := disk.Open(tr.root)
	if err != nil {
		tr.t.Fatal(err)
	}
	tr.t.Cleanup(func() { _ = d.Close() })
	return Node{Disk: d, Wait: func(ctx context.Context, d time.Duration) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
			return nil
		}
	}, Exec: func(ctx context.Context, out io.Writer, name string, args ...string) error {
		tr.ran = append(tr.ran, strings.Join(append([]string{name}, args...), " "))
		if name == "systemctl" {
			return nil
		}
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Env = append(os.Environ(), tr.env...)
		cmd.Stdout, cmd.Stderr = out, out
		return cmd.Run()
	}}
}

// withApt makes dpkg's database and a source of packages below the repository.
func (tr *tree) withApt() *tree {
	t := tr.t
	needs(t, "apt-get", "dpkg", "dpkg-deb", "apt-mark")
	write(t, tr.root+"/usr/bin/apt-get", "", 0o755)
	for _, dir := range []string{"/var/lib/dpkg/updates", "/var/lib/dpkg/info", "/var/lib/apt/lists/partial", "/var/cache/apt/archives/partial", "/etc/apt/apt.conf.d", "/etc/apt/preferences.d", "/var/log/apt"} {
		if err := os.MkdirAll(tr.root+dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, tr.root+"/var/lib/dpkg/status", "", 0o644)
	write(t, tr.root+"/etc/apt/sources.list", "deb [trusted=yes] file:"+tr.repo+" ./\n", 0o644)
	conf := tr.root + "/apt.conf"
	write(t, conf, fmt.Sprintf(`Dir "%s"; Dir::State::status "%[1]s/var/lib/dpkg/status"; Dir::Bin::dpkg "/usr/bin/dpkg"; Dir::Bin::methods "/usr/lib/apt/methods";
APT::Architecture "amd64"; DPkg::Options { "--root=%[1]s"; "--force-not-root"; "--force-script-chrootless"; "--log=/dev/null"; }; APT::Sandbox::User "root";
DPkg::Pre-Install-Pkgs {}; #clear DPkg::Post-Invoke; #clear APT::Update::Post-Invoke; #clear DPkg::Pre-Install-Pkgs;
`, tr.root), 0o644)
	tr.env = []string{"APT_CONFIG=" + conf, "DPKG_ADMINDIR=" + tr.root + "/var/lib/dpkg"}
	return tr
}

// deb puts a package into the repository.
func (tr *tree) deb(name, version, conffile string, more ...string) string {
	t := tr.t
	dir := t.TempDir()
	write(t, dir+"/DEBIAN/control", fmt.Sprintf("Package: %s\nVersion: %s\nArchitecture: amd64\nMaintainer: nobody <n@example.org>\n%sDescription: a test\n", name, version, strings.Join(more, "")), 0o644)
	write(t, dir+"/usr/share/"+name, version, 0o644)
	if conffile != "" {
		write(t, dir+"/etc/"+name+".conf", conffile, 0o644)
		write(t, dir+"/DEBIAN/conffiles", "/etc/"+name+".conf\n", 0o644)
	}
	out := filepath.Join(tr.repo, name+"_"+version+".deb")
	tool(t, "dpkg-deb", "--root-owner-group", "--build", dir, out)
	return out
}

// index makes the repository's list, as dpkg-scanpackages would.
func (tr *tree) index() {
	t := tr.t
	debs, _ := filepath.Glob(tr.repo + "/*.deb")
	var list strings.Builder
	for _, deb := range debs {
		control, err := exec.Command("dpkg-deb", "--field", deb).Output()
		if err != nil {
			t.Fatal(err)
		}
		sum, err := exec.Command("sha256sum", deb).Output()
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(deb)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&list, "%sFilename: ./%s\nSize: %d\nSHA256: %s\n\n", control, filepath.Base(deb), info.Size(), strings.Fields(string(sum))[0])
	}
	write(t, tr.repo+"/Packages", list.String(), 0o644)
}

func (tr *tree) install(debs ...string) {
	tool(tr.t, "dpkg", append([]string{"--root=" + tr.root, "--force-script-chrootless", "--log=/dev/null", "-i"}, debs...)...)
}

func (tr *tree) installed(name string) string {
	out, _ := exec.Command("dpkg-query", "--admindir="+tr.root+"/var/lib/dpkg", "-f", "${Version} ${db:Status-Want}", "-W", name).Output()
	return string(out)
}

// three are packages in version 1, with version 2 in the repository: one with a configuration file
// that was edited on the node, one on hold.
func three(t *testing.T) *tree {
	tr := newTree(t).withApt()
	tr.install(tr.deb("alpha", "1", ""), tr.deb("beta", "1", "colour=red\n"), tr.deb("kubelet", "1", ""))
	write(t, tr.root+"/etc/beta.conf", "colour=mine\n", 0o644)
	tr.deb("alpha", "2", "")
	tr.deb("beta", "2", "colour=blue\n")
	tr.deb("kubelet", "2", "")
	tr.index()
	tool(t, "sh", "-c", "echo kubelet hold | dpkg --root="+tr.root+" --set-selections")
	return tr
}

func names(changed []Change) (out []string) {
	for _, c := range changed {
		out = append(out, fmt.Sprintf("%s %s>%s", c.Name, c.From, c.To))
	}
	return out
}

// TestApt: what has a newer version is upgraded and named, what is on hold and what was edited
// stays, and a second run has nothing to do.
func TestApt(t *testing.T) {
	t.Parallel()
	tr := three(t)
	n := tr.node()
	r, err := n.Patch(t.Context(), Policy{})
	if err != nil || r.Failure != "" {
		t.Fatalf("%v, %s\n%s", err, r.Failure, r.Last)
	}
	if got := names(r.Changed); r.Manager != Apt || !slices.Equal(got, []string{"alpha 1>2", "beta 1>2"}) || !slices.Equal(r.Kept, []string{"kubelet"}) {
		t.Errorf("%+v", r)
	}
	if text, _ := os.ReadFile(tr.root + "/etc/beta.conf"); string(text) != "colour=mine\n" {
		t.Errorf("the node's configuration is now %q", text)
	}
	if r.Boot != "boot-1" || len(r.Reboot) > 0 || !strings.Contains(r.Last, "2 upgraded") {
		t.Errorf("%+v", r)
	}
	if got := tr.installed("kubelet"); got != "1 hold" {
		t.Errorf("kubelet is %s", got)
	}
	again, err := n.Patch(t.Context(), Policy{})
	if err != nil || again.Failure != "" || len(again.Changed) > 0 {
		t.Errorf("again: %+v, %v", again, err)
	}
}

// TestHeld: asked for, a package on hold is upgraded too, and is on hold again.
func TestHeld(t *testing.T) {
	t.Parallel()
	tr := three(t)
	r, err := tr.node().Patch(t.Context(), Policy{Held: "upgrade"})
	if err != nil || r.Failure != "" || len(r.Changed) != 3 {
		t.Fatalf("%+v, %v", r, err)
	}
	if got := tr.installed("kubelet"); got != "2 hold" {
		t.Errorf("kubelet is %s", got)
	}
}

// TestHeldUpgraded: a manager that changes a package on hold has failed.
func TestHeldUpgraded(t *testing.T) {
	t.Parallel()
	tr := three(t)
	write(t, tr.root+"/"+CommandPath, "", 0o755)
	n := tr.node()
	run := n.Exec
	n.Exec = func(ctx context.Context, out io.Writer, name string, args ...string) error {
		if slices.Contains(args, "/"+CommandPath) { // the tree is no root to run it in
			tr.install(tr.repo + "/kubelet_2.deb")
			return nil
		}
		return run(ctx, out, name, args...)
	}
	r, err := n.Patch(t.Context(), Policy{Manager: Command})
	if err != nil || !strings.Contains(r.Failure, "kubelet is on hold and was changed from 1 to 2") || r.Manager != Command {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestRemovalRefused: an upgrade that would take the kubelet away is not begun.
func TestRemovalRefused(t *testing.T) {
	t.Parallel()
	tr := newTree(t).withApt()
	tr.install(tr.deb("alpha", "1", ""), tr.deb("kubelet", "1", ""))
	tr.deb("alpha", "2", "", "Depends: gamma\n")
	tr.deb("gamma", "1", "", "Conflicts: kubelet\n")
	// dist-upgrade weighs priorities; without one of the kubelet it would rather keep it.
	tool(t, "sh", "-c", "sed -i 's/^Package: alpha/Package: alpha\\nEssential: yes\\nPriority: required/' "+tr.root+"/var/lib/dpkg/status")
	tr.index()
	r, err := tr.node().Patch(t.Context(), Policy{})
	if err != nil || !strings.Contains(r.Failure, "would remove kubelet") || len(r.Changed) > 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestRefused: what could not be patched is refused before anything is changed.
func TestRefused(t *testing.T) {
	t.Parallel()
	amazon := newTree(t, "dnf")
	write(t, amazon.root+"/etc/os-release", "ID=\"amzn\"\nVERSION_ID=\"2023\"\n", 0o644)
	loose := newTree(t)
	write(t, loose.root+"/"+CommandPath, "", 0o777)
	if err := os.Chmod(loose.root+"/"+CommandPath, 0o777); err != nil {
		t.Fatal(err)
	}
	half := three(t)
	// Unpacked and not configured, as a power cut leaves it.
	tool(t, "dpkg", "--root="+half.root, "--force-script-chrootless", "--log=/dev/null", "--unpack", half.repo+"/alpha_2.deb")
	if out, _ := exec.Command("dpkg", "--root="+half.root, "--audit").Output(); !strings.Contains(string(out), "alpha") {
		t.Fatalf("dpkg finds nothing wrong: %s", out)
	}
	for _, c := range []struct {
		name   string
		tree   *tree
		policy Policy
		want   string
	}{
		{"no manager", newTree(t), Policy{}, "neither apt nor dnf"},
		{"half-configured", half, Policy{}, "alpha is unpacked"},
		{"no room", three(t), Policy{RoomMiB: 1 << 40}, "MiB free"},
		{"no release", amazon, Policy{}, "--releasever"},
		{"not there", newTree(t, "apt-get"), Policy{Manager: Unattended}, "no unattended-upgrade"},
		{"security by apt", newTree(t, "apt-get"), Policy{Scope: "security"}, "install unattended-upgrades"},
		{"anybody's program", loose, Policy{Manager: Command}, "changed by others"},
		{"no program", newTree(t), Policy{Manager: Command}, "no program at /etc/kamino/patch"},
	} {
		_, err := c.tree.node().Patch(t.Context(), c.policy)
		if refused := (*Refused)(nil); !errors.As(err, &refused) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
		if len(c.tree.ran) > 0 {
			t.Errorf("%s: ran %q", c.name, c.tree.ran)
		}
	}
}

// TestLock: a lock that somebody holds is waited for, until the time limit.
func TestLock(t *testing.T) {
	t.Parallel()
	tr := three(t)
	n := tr.node()
	release := tr.hold("var/lib/dpkg/lock-frontend")
	waits := 0
	wait := n.Wait
	n.Wait = func(ctx context.Context, d time.Duration) error {
		if waits++; waits == 3 {
			release()
		}
		return wait(ctx, d)
	}
	r, err := n.Patch(t.Context(), Policy{})
	if err != nil || r.Failure != "" || waits < 3 || len(r.Changed) != 2 {
		t.Errorf("%d waits: %+v, %v", waits, r, err)
	}
	f, err := os.OpenFile(tr.root+"/var/lib/dpkg/lock-frontend", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &syscall.Flock_t{Type: syscall.F_WRLCK}); err != nil {
		t.Errorf("a lock is left: %v", err)
	}
}

// TestCheckUnderWay: packages that somebody is changing just now are waited for; what is half-way
// once nobody holds the lock was interrupted.
func TestCheckUnderWay(t *testing.T) {
	t.Parallel()
	for _, interrupted := range []bool{false, true} {
		tr := three(t)
		n := tr.node()
		journal := filepath.Join(tr.root, "var/lib/dpkg/updates/0001")
		if err := errors.Join(os.MkdirAll(filepath.Dir(journal), 0o755), os.WriteFile(journal, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		release, waits := tr.hold("var/lib/dpkg/lock-frontend"), 0
		n.Wait = func(ctx context.Context, d time.Duration) error {
			if waits++; waits == 3 {
				if !interrupted {
					if err := os.Remove(journal); err != nil {
						t.Error(err)
					}
				}
				release()
			}
			return ctx.Err()
		}
		var refused *Refused
		if err := n.Check(t.Context(), Policy{RoomMiB: 1}); errors.As(err, &refused) != interrupted || waits < 3 {
			t.Errorf("interrupted %t: %v after %d waits", interrupted, err, waits)
		}
	}
}

// TestCheckAwaitsLock: before the node is drained any lock is waited for, as Patch would wait for
// it afterwards; where that takes too long, the process is named.
func TestCheckAwaitsLock(t *testing.T) {
	t.Parallel()
	tr := three(t)
	n := tr.node()
	release := tr.hold("var/lib/dpkg/lock-frontend")
	defer release()
	n.Wait = func(context.Context, time.Duration) error { return context.DeadlineExceeded }
	if err := n.Check(t.Context(), Policy{Task: TaskCheck, RoomMiB: 1}); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "holds /var/lib/dpkg/lock-frontend") {
		t.Error(err)
	}
	if err := n.Check(t.Context(), Policy{RoomMiB: 1}); err != nil {
		t.Errorf("of an upgrade, which waits itself: %v", err)
	}
}

// hold lets another process lock a file, since a lock of one's own does not count (fcntl(2)), until
// what is returned is called.
func (tr *tree) hold(name string) (release func()) {
	needs(tr.t, "python3")
	holder := exec.Command("python3", "-c", "import fcntl,sys; f=open(sys.argv[1],'w'); fcntl.lockf(f,fcntl.LOCK_EX); print('held',flush=True); sys.stdin.read()", filepath.Join(tr.root, name))
	in, err := holder.StdinPipe()
	if err != nil {
		tr.t.Fatal(err)
	}
	out, err := holder.StdoutPipe()
	if err != nil {
		tr.t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		tr.t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 8)); err != nil {
		tr.t.Fatal(err)
	}
	return sync.OnceFunc(func() {
		_ = in.Close() // it lets go
		_ = holder.Wait()
	})
}

// TestReboot: the mark of Debian, and a kernel newer than the one that runs.
func TestReboot(t *testing.T) {
	t.Parallel()
	tr := three(t)
	write(t, tr.root+"/boot/vmlinuz-6.1.0-30-amd64", "", 0o644)
	write(t, tr.root+"/boot/vmlinuz-6.1.0-31-amd64", "", 0o644)
	write(t, tr.root+"/run/reboot-required", "", 0o644)
	write(t, tr.root+"/run/reboot-required.pkgs", "libc6\nlinux-base\nlibc6\n", 0o644)
	r, err := tr.node().Patch(t.Context(), Policy{})
	want := []string{"/run/reboot-required names libc6, linux-base", "kernel 6.1.0-31-amd64 is installed and 6.1.0-30-amd64 runs"}
	if err != nil || !slices.Equal(r.Reboot, want) {
		t.Errorf("%q, %v", r.Reboot, err)
	}
	// A kernel from outside is none of those in /boot.
	write(t, tr.root+"/proc/sys/kernel/osrelease", "6.12.5-other\n", 0o644)
	if r, err := tr.node().Look(t.Context()); err != nil || len(r.Reboot) != 1 || r.Running != "6.12.5-other" || r.Newest != "6.1.0-31-amd64" {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestUnattended: it is what a node that has it is patched by, with dpkg kept from asking.
func TestUnattended(t *testing.T) {
	t.Parallel()
	tr := three(t)
	write(t, tr.root+"/usr/bin/unattended-upgrade", "", 0o755)
	n := tr.node()
	run, reboots := n.Exec, "false"
	n.Exec = func(ctx context.Context, out io.Writer, name string, args ...string) error {
		if name == "apt-config" {
			_, _ = io.WriteString(out, "AUTO='"+reboots+"'\n")
			return nil
		}
		if slices.Contains(args, "unattended-upgrade") { // which this machine need not have
			tr.ran = append(tr.ran, strings.Join(args, " "))
			args = append(slices.Clone(quiet), "apt-get", "-y", "-o", "Dpkg::Options::=--force-confold", "install", "--only-upgrade", "alpha")
			return run(ctx, out, "env", args...)
		}
		return run(ctx, out, name, args...)
	}
	r, err := n.Patch(t.Context(), Policy{})
	if err != nil || r.Failure != "" || r.Manager != Unattended || !slices.Equal(names(r.Changed), []string{"alpha 1>2"}) {
		t.Fatalf("%+v, %v", r, err)
	}
	all := strings.Join(tr.ran, "\n")
	stop, start := strings.Index(all, "systemctl stop apt-daily.timer"), strings.Index(all, "systemctl start apt-daily.timer")
	if ran := strings.Index(all, "APT_CONFIG=/run/kamino/patch-apt.conf unattended-upgrade -v"); stop < 0 || ran < stop || start < ran {
		t.Errorf("ran\n%s", all)
	}
	reboots = "true"
	if r, err := n.Patch(t.Context(), Policy{}); err != nil || !strings.Contains(r.Failure, "Automatic-Reboot") {
		t.Errorf("%+v, %v", r, err)
	}
}

// inNode lets programs see the tree as their machine: package database, sources, configuration and
// /run are the tree's; all else is this machine's, of which what they change is forgotten. It needs
// root and overlayfs.
const inNode = `set -e
root=$1 space=$2; shift 2
mount -t tmpfs none "$space"
mkdir "$space/up" "$space/work" "$space/all"
mount -t overlay none -o "lowerdir=/,upperdir=$space/up,workdir=$space/work" "$space/all"
for dir in dev proc sys tmp; do mount --rbind "/$dir" "$space/all/$dir"; done
for dir in etc/apt run var/cache/apt var/lib/apt var/lib/dpkg var/log; do
	mkdir -p "$root/$dir" "$space/all/$dir"
	mount --bind "$root/$dir" "$space/all/$dir"
done
exec chroot "$space/all" "$@"`

// unattendedNode is a tree of which the real unattended-upgrade may take alpha, beta and kubelet,
// and not gamma, which is another origin's.
func unattendedNode(t *testing.T) (*tree, Node) {
	needs(t, "unattended-upgrade", "unshare", "chroot")
	tr := three(t)
	inside := []string{"--mount", "sh", "-c", inNode, "sh", tr.root, t.TempDir()}
	if out, err := exec.Command("unshare", append(slices.Clone(inside), "true")...).CombinedOutput(); err != nil {
		t.Skipf("cannot mount over this machine's files: %v\n%s", err, out)
	}
	tr.release("Debian", "Debian-Security")
	other := &tree{t: t, root: tr.root, repo: t.TempDir()}
	tr.install(tr.deb("gamma", "1", ""))
	other.deb("gamma", "2", "")
	other.index()
	other.release("Somebody", "Else")
	write(t, tr.root+"/etc/apt/sources.list", "deb [trusted=yes] file:"+tr.repo+" ./\ndeb [trusted=yes] file:"+other.repo+" ./\n", 0o644)
	write(t, tr.root+"/etc/apt/apt.conf.d/50unattended-upgrades", `Unattended-Upgrade::Origins-Pattern { "origin=Debian,label=Debian-Security"; };
APT::Sandbox::User "root"; Unattended-Upgrade::OnlyOnACPower "false"; Unattended-Upgrade::Skip-Updates-On-Metered-Connections "false";
`, 0o644)
	write(t, tr.root+"/usr/bin/unattended-upgrade", "", 0o755)
	tr.env = nil // no file of options: the tree is all of apt's that is seen
	n := tr.node()
	run := n.Exec
	n.Exec = func(ctx context.Context, out io.Writer, name string, args ...string) error {
		if name != "systemctl" {
			name, args = "unshare", slices.Concat(inside, []string{name}, args)
		}
		return run(ctx, out, name, args...)
	}
	return tr, n
}

// TestUnattendedForReal: the real program takes what its origins allow, asks nothing about a file
// that was edited, and leaves a package on hold and other origins alone.
func TestUnattendedForReal(t *testing.T) {
	t.Parallel()
	tr, n := unattendedNode(t)
	r, err := n.Patch(t.Context(), Policy{})
	if err != nil || r.Failure != "" || r.Manager != Unattended || !slices.Equal(names(r.Changed), []string{"alpha 1>2", "beta 1>2"}) || !slices.Equal(r.Kept, []string{"kubelet"}) {
		t.Fatalf("%+v, %v", r, err)
	}
	if got := tr.installed("kubelet") + ", " + tr.installed("gamma"); got != "1 hold, 1 install" {
		t.Errorf("kubelet and gamma are %s", got)
	}
	if again, err := n.Patch(t.Context(), Policy{}); err != nil || again.Failure != "" || len(again.Changed) > 0 {
		t.Errorf("again: %+v, %v", again, err)
	}
}

// TestUnattendedLocked: what somebody takes a lock for, once it was seen that nobody has it, is
// waited for, whichever of the locks of the real program it is.
func TestUnattendedLocked(t *testing.T) {
	t.Parallel()
	for _, lock := range []string{"run/unattended-upgrades.lock", "var/lib/dpkg/lock-frontend"} {
		t.Run(filepath.Base(lock), func(t *testing.T) {
			t.Parallel()
			tr, n := unattendedNode(t)
			var release func()
			waits, run, wait := 0, n.Exec, n.Wait
			n.Exec = func(ctx context.Context, out io.Writer, name string, args ...string) error {
				if slices.Contains(args, "unattended-upgrade") && release == nil {
					release = tr.hold(lock)
				}
				return run(ctx, out, name, args...)
			}
			n.Wait = func(ctx context.Context, d time.Duration) error {
				if waits++; waits == 2 {
					release()
				}
				return wait(ctx, d)
			}
			r, err := n.Patch(t.Context(), Policy{})
			if release == nil {
				t.Fatalf("unattended-upgrade was not run: %+v, %v", r, err)
			}
			release()
			if err != nil || r.Failure != "" || waits < 2 || len(r.Changed) != 2 {
				t.Errorf("%d waits: %+v, %v", waits, r, err)
			}
		})
	}
}

// release tells whose the repository is.
func (tr *tree) release(origin, label string) {
	list, err := os.ReadFile(tr.repo + "/Packages")
	if err != nil {
		tr.t.Fatal(err)
	}
	write(tr.t, tr.repo+"/Release", fmt.Sprintf("Origin: %s\nLabel: %s\nSHA256:\n %x %d Packages\n", origin, label, sha256.Sum256(list), len(list)), 0o644)
}

// TestLimit: a manager that does not end is ended, and that is told.
func TestLimit(t *testing.T) {
	t.Parallel()
	tr := three(t)
	n := tr.node()
	n.Exec = func(ctx context.Context, out io.Writer, command string, _ ...string) error {
		if command == "systemctl" {
			return nil
		}
		_, _ = io.WriteString(out, "still at it\n")
		<-ctx.Done()
		return ctx.Err()
	}
	r, err := n.Patch(t.Context(), Policy{Seconds: 1})
	if err != nil || !strings.HasPrefix(r.Failure, "not done within 1s: ") || r.Last != "still at it" {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestParsePolicy(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{`{"manager":"curl"}`, `{"release":"2023; reboot"}`, `{"command":"rm -rf /"}`, `{"seconds":-1}`, `{"scope":"some"}`, `[`} {
		if p, err := ParsePolicy(bad); err == nil {
			t.Errorf("%s: %+v", bad, p)
		}
	}
	if p, err := ParsePolicy(`{"scope":"security","release":"2023.6.20250107","held":"upgrade"}`); err != nil || p.Release != "2023.6.20250107" || p.Limit() != time.Hour {
		t.Errorf("%+v, %v", p, err)
	}
}

// dnfNode is a tree with rpm's real database, whose packages are in version 1, and a repository
// with version 2 of them; version 2 of alpha alone mends a hole, and kubelet is kept back, as the
// guides of Kubernetes do it. A real dnf works on it. More are packages besides.
func dnfNode(t *testing.T, more ...string) Node {
	needs(t, "dnf", "rpmbuild", "rpm", "createrepo_c", "modifyrepo_c")
	tr := newTree(t, "dnf")
	home := t.TempDir() // Debian's rpm keeps its database below the user's home otherwise
	write(t, home+"/.rpmmacros", "%_dbpath /var/lib/rpm\n", 0o644)
	tr.env = []string{"HOME=" + home}
	install := []string{"--root=" + tr.root, "--dbpath=/var/lib/rpm", "-i"}
	for _, name := range append([]string{"alpha", "beta", "kubelet"}, more...) {
		tr.rpm(name, "1")
		tr.rpm(name, "2")
		install = append(install, tr.repo+"/"+name+"-1-1.noarch.rpm")
	}
	tool(t, "rpm", install...)
	tool(t, "createrepo_c", "-q", tr.repo)
	notice := t.TempDir() + "/updateinfo.xml"
	write(t, notice, `<?xml version="1.0"?><updates><update from="nobody" status="stable" type="security" version="1"><id>HOLE-1</id><title>a hole</title>
<issued date="2026-01-01 00:00:00"/><severity>Important</severity><pkglist><collection><name>test</name>
<package name="alpha" version="2" release="1" epoch="0" arch="noarch"><filename>alpha-2-1.noarch.rpm</filename></package></collection></pkglist></update></updates>
`, 0o644)
	tool(t, "modifyrepo_c", "--mdtype=updateinfo", notice, tr.repo+"/repodata")
	write(t, tr.root+"/etc/dnf/dnf.conf", "[main]\ngpgcheck=0\nexcludepkgs=kubelet\n", 0o644)
	write(t, tr.root+"/etc/yum.repos.d/test.repo", "[test]\nname=test\nbaseurl=file://"+tr.repo+"\ngpgcheck=0\nenabled=1\n", 0o644)
	n := tr.node()
	run := n.Exec
	n.Exec = func(ctx context.Context, out io.Writer, name string, args ...string) error {
		if i := slices.Index(args, "dnf"); i >= 0 {
			args = slices.Insert(slices.Clone(args), i+1, "--installroot="+tr.root, "--config="+tr.root+"/etc/dnf/dnf.conf",
				"--setopt=reposdir="+tr.root+"/etc/yum.repos.d", "--releasever=9")
			if !slices.Contains(args, "needs-restarting") { // which is a plugin
				args = append(args, "--setopt=plugins=0")
			}
		}
		return run(ctx, out, name, args...)
	}
	return n
}

// TestDnf: a real dnf upgrades what the run asks for, and what the node keeps back only where it
// asks for that; asked again it finds nothing.
func TestDnf(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		policy Policy
		want   []string
	}{
		"all but what is kept back": {Policy{}, []string{"alpha 1-1>2-1", "beta 1-1>2-1"}},
		"security":                  {Policy{Scope: "security"}, []string{"alpha 1-1>2-1"}},
		"also what is kept back":    {Policy{Held: "upgrade"}, []string{"alpha 1-1>2-1", "beta 1-1>2-1", "kubelet 1-1>2-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := dnfNode(t)
			r, err := n.Patch(t.Context(), tt.policy)
			if err != nil || r.Failure != "" || r.Manager != Dnf || !slices.Equal(names(r.Changed), tt.want) {
				t.Fatalf("%+v, %v", r, err)
			}
			if again, err := n.Patch(t.Context(), tt.policy); err != nil || again.Failure != "" || len(again.Changed) > 0 {
				t.Errorf("again: %+v, %v", again, err)
			}
		})
	}
}

// TestNeedsRestarting: dnf's word on a reboot is asked for where the program of yum-utils is, and
// where only dnf is; a plain error of either, which ends with 1 too, asks for none.
func TestNeedsRestarting(t *testing.T) {
	t.Parallel()
	const said = "Core libraries or services have been updated since boot-up:\n  * glibc\nReboot is required to fully utilize these updates."
	want := []string{"needs-restarting: reboot is required"}
	for name, tt := range map[string]struct {
		program, text string
		code          int
		asked         string
		want          []string
	}{
		"the program":              {"needs-restarting", said, 1, "needs-restarting -r", want},
		"the program fails":        {"needs-restarting", "Error: cannot open the database", 1, "needs-restarting -r", nil},
		"the program needs none":   {"needs-restarting", "Reboot should not be necessary.", 0, "needs-restarting -r", nil},
		"dnf alone":                {"dnf", said, 1, "dnf -C needs-restarting -r", want},
		"dnf without that command": {"dnf", "No such command: needs-restarting.", 1, "dnf -C needs-restarting -r", nil},
		"neither":                  {"rpm", said, 1, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := newTree(t, tt.program)
			n, asked := tr.node(), ""
			n.Exec = func(ctx context.Context, out io.Writer, name string, args ...string) error {
				if line := strings.Join(args, " "); strings.Contains(line, "needs-restarting") {
					asked = strings.TrimPrefix(line, "LC_ALL=C ")
					_, _ = io.WriteString(out, tt.text)
					return exec.CommandContext(ctx, "sh", "-c", fmt.Sprint("exit ", tt.code)).Run()
				}
				return nil
			}
			if r, err := n.Look(t.Context()); err != nil || asked != tt.asked || !slices.Equal(r.Reboot, tt.want) {
				t.Errorf("asked %q, told %q, %v", asked, r.Reboot, err)
			}
		})
	}
}

// TestNeedsRestartingForReal: the real dnf asks for a reboot once glibc was upgraded, and not for
// other packages.
func TestNeedsRestartingForReal(t *testing.T) {
	t.Parallel()
	needs(t, "dnf", "rpmbuild", "rpm")
	if out, err := exec.Command("dnf", "needs-restarting", "--help").CombinedOutput(); err != nil {
		t.Skipf("needs dnf's plugins: %v\n%s", err, out)
	}
	for name, want := range map[string][]string{"glibc": {"needs-restarting: reboot is required"}, "gamma": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := dnfNode(t, name)
			if r, err := n.Look(t.Context()); err != nil || !slices.Equal(r.Reboot, want) {
				t.Errorf("%q, %v", r.Reboot, err)
			}
		})
	}
}

// rpm puts a package into the repository.
func (tr *tree) rpm(name, version string) {
	top := tr.t.TempDir()
	write(tr.t, top+"/p.spec", fmt.Sprintf("Name: %s\nVersion: %s\nRelease: 1\nSummary: a test\nLicense: none\nBuildArch: noarch\n%%description\na test\n%%files\n", name, version), 0o644)
	tool(tr.t, "rpmbuild", "-bb", "--define", "_topdir "+top, "--define", "_rpmdir "+tr.repo, "--define", "_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm", top+"/p.spec")
}

// TestHoldKept: the upgrade of packages on hold ends badly, as where one of them has a script that
// fails or the time is over: those that were upgraded until then were on hold, and the next patch,
// which is asked to keep what is on hold, must not upgrade them.
func TestHoldKept(t *testing.T) {
	t.Parallel()
	tr := three(t)
	n := tr.node()
	run := n.Exec
	n.Exec = func(ctx context.Context, out io.Writer, name string, args ...string) error {
		err := run(ctx, out, name, args...)
		if err == nil && slices.Contains(args, "--allow-change-held-packages") && !slices.Contains(args, "--simulate") {
			return errors.New("exit status 100") // dpkg: error processing package other
		}
		return err
	}
	if r, err := n.Patch(t.Context(), Policy{Held: "upgrade"}); err != nil || r.Failure == "" {
		t.Fatalf("%+v, %v", r, err)
	}
	if got := tr.installed("kubelet"); got != "2 hold" && got != "1 hold" {
		t.Errorf("kubelet was on hold and is %q", got)
	}
	tr.deb("kubelet", "3", "")
	tr.index()
	r, err := tr.node().Patch(t.Context(), Policy{})
	if got := tr.installed("kubelet"); got == "3 install" || got == "3 hold" {
		t.Errorf("the next patch, which keeps what is on hold, ended %q, %v and upgraded the kubelet to %s", r.Failure, err, got)
	}
}

// killed is a machine on which a patch was killed while dpkg upgraded what is on hold.
func killed(t *testing.T) *tree {
	t.Helper()
	tr := three(t)
	n := tr.node()
	run := n.Exec
	n.Exec = func(ctx context.Context, out io.Writer, name string, args ...string) error {
		if slices.Contains(args, "apt-mark") {
			return errors.New("killed")
		}
		return run(ctx, out, name, args...)
	}
	if r, err := n.Patch(t.Context(), Policy{Held: "upgrade"}); err != nil || r.Failure == "" || tr.installed("kubelet") != "2 install" {
		t.Fatalf("%+v, %v, kubelet is %s", r, err, tr.installed("kubelet"))
	}
	return tr
}

// TestHoldGone: what was on hold is no package any more, as a person removed it and its archive.
// The node can be patched all the same.
func TestHoldGone(t *testing.T) {
	t.Parallel()
	tr := killed(t)
	tool(t, "dpkg", "--root="+tr.root, "--force-not-root", "--force-script-chrootless", "--log=/dev/null", "--purge", "kubelet")
	archives, err := filepath.Glob(tr.repo + "/kubelet*")
	if err != nil || len(archives) == 0 {
		t.Fatal(archives, err)
	}
	for _, a := range archives {
		if err := os.Remove(a); err != nil {
			t.Fatal(err)
		}
	}
	tr.index()
	if err := tr.node().Exec(t.Context(), io.Discard, "apt-get", "update"); err != nil {
		t.Fatal(err)
	}
	if r, err := tr.node().Patch(t.Context(), Policy{}); err != nil || r.Failure != "" {
		t.Errorf("%v, %q", err, r.Failure)
	}
}

// TestHoldReleased: a day after a patch was killed, somebody has seen to the node, and let the
// kubelet be upgraded: it is not put on hold again.
func TestHoldReleased(t *testing.T) {
	t.Parallel()
	tr := killed(t)
	then := time.Now().Add(-holdsLast)
	if err := os.Chtimes(filepath.Join(tr.root, holdsPath), then, then); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second finds no list
		if r, err := tr.node().Patch(t.Context(), Policy{}); err != nil || r.Failure != "" {
			t.Fatal(err, r.Failure)
		}
	}
	if got := tr.installed("kubelet"); got != "2 install" {
		t.Errorf("somebody took kubelet off hold, and it is %q", got)
	}
}

// TestHoldKilled: a process that was killed while dpkg worked has put nothing on hold again. The
// next patch does that first, and what ends the unit does, too.
func TestHoldKilled(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]func(Node) error{
		"the next patch": func(n Node) error { _, err := n.Patch(t.Context(), Policy{}); return err },
		"the unit's end": func(n Node) error { return n.HoldAgain(t.Context(), io.Discard) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := killed(t)
			tr.deb("kubelet", "3", "")
			tr.index()
			if err := next(tr.node()); err != nil {
				t.Fatal(err)
			}
			if got := tr.installed("kubelet"); got != "2 hold" {
				t.Errorf("kubelet was on hold and is %q", got)
			}
		})
	}
}
