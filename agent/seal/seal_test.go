package seal

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	bolt "go.etcd.io/bbolt"
	"kamino.dev/kamino/agent/disk"
)

func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range Table() {
		if seen[r.ID] || r.Why == "" || r.Group == "" || len(r.Paths) == 0 || !ruleID.MatchString(r.ID) {
			t.Errorf("rule %q: repeated, or something is missing", r.ID)
		}
		seen[r.ID] = true
		paths := r.Paths
		if len(r.Below) > 0 {
			paths = r.Below
		}
		if err := absolute(r.ID, append(append(slices.Clone(paths), r.Keep...), r.Shared...)); err != nil {
			t.Error(err)
		}
		if _, has := plants[r.ID]; !has {
			t.Errorf("rule %s: nothing is planted for it", r.ID)
		}
		if r.Secret && r.Action == Truncate {
			t.Errorf("rule %s: a truncated file keeps its name; a secret's is removed", r.ID)
		}
	}
	if table := Table(); table[len(table)-1].ID != "machine-id" {
		t.Error("machine-id is not last")
	}
}

// TestEveryRule: the plan names every rule of the table, and afterwards what was planted for it is
// gone or harmless.
func TestEveryRule(t *testing.T) {
	d := plant(t)
	r, err := Seal(t.Context(), d, planted(nil))
	if err != nil {
		t.Fatal(err)
	}
	applied := map[string]int{}
	for _, c := range r.Rules {
		applied[c.ID] = c.Matched
	}
	for _, rule := range Table() {
		wanted := rule.Action != Check && (rule.When == "" || rule.When == FirstBootAgent)
		if (applied[rule.ID] > 0) != wanted {
			t.Errorf("rule %s matched %d", rule.ID, applied[rule.ID])
		}
	}
	for _, kept := range []string{"usr/bin/kubelet", "home/u/notes", "etc/kubernetes/pki/ca.crt", "etc/cni/net.d/10-azure.conflist",
		"var/lib/waagent/WALinuxAgent-2.9.1.1/agent", "etc/cloud/cloud.cfg"} {
		if !d.Exists(kept) {
			t.Errorf("%s is gone", kept)
		}
	}
	for _, gone := range []string{journalPath, asideDir} {
		if d.Exists(gone) {
			t.Errorf("%s is still there", gone)
		}
	}
	db, err := os.ReadFile(d.Host("var/lib/containerd/io.containerd.metadata.v1.bolt/meta.db"))
	if err != nil || strings.Contains(string(db), "PRIVATE KEY") {
		t.Errorf("containerd's database: %v, or a removed container is still in it", err)
	}
	image, err := bolt.Open(d.Host("var/lib/containerd/io.containerd.metadata.v1.bolt/meta.db"), 0o600, &bolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	if err := image.View(func(tx *bolt.Tx) error {
		if string(tx.Bucket([]byte("images")).Get([]byte("pause"))) != "sha256:1" {
			t.Error("the image is gone from containerd's database")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	again, err := Seal(t.Context(), d, planted(nil))
	if err != nil || again.Hash != r.Hash {
		t.Errorf("sealed again: %v, receipt %s, first %s", err, again.Hash, r.Hash)
	}
}

// TestWithoutARule: each secret rule that is left out is noticed by the scan, and the donor is as
// it was.
func TestWithoutARule(t *testing.T) {
	for _, r := range Table() {
		if !r.Secret {
			continue
		}
		t.Run(r.ID, func(t *testing.T) {
			t.Parallel()
			d := plant(t)
			before := read(t, d)
			_, err := Seal(t.Context(), d, planted(func(o *Options) { o.Omit = r.ID }))
			var found *Found
			if err == nil && untouched(d, plants[r.ID]) == "" {
				return // another rule takes it as well: what a log rule leaves, other-logs empties
			}
			if !errors.As(err, &found) {
				t.Fatalf("the scan did not notice /%s: %v", untouched(d, plants[r.ID]), err)
			}
			at := slices.Sorted(func(yield func(string) bool) {
				for name := range plants[r.ID] {
					if !yield(name) {
						return
					}
				}
			})
			for _, f := range found.Result.Findings {
				if !slices.ContainsFunc(at, func(name string) bool { return disk.Under(name, f.Path) }) {
					t.Errorf("found %s, which this rule does not take away", f)
				}
				if strings.Contains(f.String(), "hunter2") || strings.Contains(f.String(), "MHcCAQ") {
					t.Errorf("the finding tells the secret: %s", f)
				}
			}
			sameAs(t, before, read(t, d))
		})
	}
}

// untouched is one of the files that is still as it was planted.
func untouched(d *disk.Disk, files map[string]string) string {
	for name, text := range files {
		if data, err := os.ReadFile(d.Host(name)); err == nil && string(data) == text {
			return name
		}
	}
	return ""
}

func sameAs(t *testing.T, before, after map[string]state) {
	t.Helper()
	delete(after, StateDir) // stays, as an empty directory with the agent's mode
	delete(before, StateDir)
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("the disk is not as it was (-before +after):\n%s", diff)
	}
}

// TestInterrupted: stopped dead after each rule, the disk comes back wholly: by unseal, or by the
// next seal's own start.
func TestInterrupted(t *testing.T) {
	boundaries := []string{"ancestry"}
	for _, r := range Table() {
		if r.Action != Check && r.When != FirstBootCloudInit {
			boundaries = append(boundaries, r.ID)
		}
	}
	for _, id := range boundaries {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			d := plant(t)
			before := read(t, d)
			if _, err := Seal(t.Context(), d, planted(func(o *Options) { o.InterruptAfter = id })); !errors.Is(err, ErrInterrupted) {
				t.Fatalf("not interrupted: %v", err)
			}
			if !Interrupted(d) || InterruptedBy(d) != donorVM {
				t.Fatalf("interrupted: %v, by %q", Interrupted(d), InterruptedBy(d))
			}
			if _, err := begin(d, donorVM); err == nil {
				t.Error("a new stage began over an interrupted one")
			}
			if n, err := Unseal(d); err != nil || n == 0 {
				t.Fatalf("unseal: %d, %v", n, err)
			}
			sameAs(t, before, read(t, d))
			if n, err := Unseal(d); err != nil || n != 0 {
				t.Errorf("unseal twice: %d, %v", n, err)
			}
		})
	}
}

// TestInterruptedUnseal: the way back may be interrupted as well; what the kill leaves half done is
// any prefix of it.
func TestInterruptedUnseal(t *testing.T) {
	d := plant(t)
	before := read(t, d)
	if _, err := Seal(t.Context(), d, planted(func(o *Options) { o.InterruptAfter = "machine-id" })); !errors.Is(err, ErrInterrupted) {
		t.Fatal(err)
	}
	ops, err := readJournal(d)
	if err != nil || len(ops) < 60 {
		t.Fatalf("%d changes, %v", len(ops), err)
	}
	for i := len(ops) - 1; i > len(ops)/2; i-- {
		if err := undo(d, ops[i]); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Unseal(d); err != nil {
		t.Fatal(err)
	}
	sameAs(t, before, read(t, d))
}

// TestTornJournal: the journal's last line was being written when the power went, so nothing of it
// had happened.
func TestTornJournal(t *testing.T) {
	d := plant(t)
	before := read(t, d)
	if _, err := Seal(t.Context(), d, planted(func(o *Options) { o.InterruptAfter = "logs" })); !errors.Is(err, ErrInterrupted) {
		t.Fatal(err)
	}
	f, err := os.OpenFile(d.Host(journalPath), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString(`{"rule":"logins","path":"var/log/wtmp","aside":"var/lib/kam`)
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := Unseal(d); err != nil {
		t.Fatal(err)
	}
	sameAs(t, before, read(t, d))
}

// TestRecordedAndNotDone: the journal says what was about to happen, and it did not.
func TestRecordedAndNotDone(t *testing.T) {
	d := plant(t)
	before := read(t, d)
	s, err := begin(d, donorVM)
	if err != nil {
		t.Fatal(err)
	}
	ops := []op{{Rule: "x", Path: "etc/hostname", Aside: asideDir + "/000000"}, {Rule: "x", Path: "etc/new/dir", Put: true, Dir: true},
		{Rule: "x", Path: "etc/new/dir/file", Put: true}, {Rule: "x", Path: "etc/hosts", Aside: asideDir + "/000001", Put: true}}
	if err := s.record(ops); err != nil {
		t.Fatal(err)
	}
	if _, err := Unseal(d); err != nil {
		t.Fatal(err)
	}
	sameAs(t, before, read(t, d))
}

// TestWithCloudInit: what cloud-init and the extensions shall do again, they find undone.
func TestWithCloudInit(t *testing.T) {
	d := plant(t)
	if _, err := Seal(t.Context(), d, planted(func(o *Options) { o.FirstBoot = FirstBootCloudInit })); err != nil {
		t.Fatal(err)
	}
	if d.Exists("opt/azure/containers/provision.complete") || d.Exists("etc/cloud/cloud-init.disabled") || d.Text("etc/waagent.conf") != "Provisioning.Agent=auto" {
		t.Error("cloud-init or waagent would do nothing")
	}
}

func TestCancelled(t *testing.T) {
	d := plant(t)
	before := read(t, d)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Seal(ctx, d, planted(nil)); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	sameAs(t, before, read(t, d))
}

func TestRefusals(t *testing.T) {
	for rule, name := range map[string]string{"encrypted-credentials": "etc/credstore.encrypted/x", "pending-reboot": "run/reboot-required",
		"control-plane": "var/lib/etcd/member/snap/db", "workload-data": "opt/local-path-provisioner/pvc-1/users.csv", "disk-keys": "etc/luks/data",
		"storage-credentials": "etc/smbcredentials/account.cred", "fstab-credentials": "etc/auto.share", "endpoint-protection": "opt/CrowdStrike/falconstore", "plain-credentials": "etc/credstore/db"} {
		t.Run(rule, func(t *testing.T) {
			d := plant(t)
			plantFile(t, d.Dir(), name, "x -fstype=cifs,password=x ://h/s\n")
			before := read(t, d)
			_, err := Seal(t.Context(), d, planted(nil))
			if err == nil || !strings.Contains(err.Error(), "refused by rule "+rule) || !strings.Contains(err.Error(), firstTwo(name)) {
				t.Errorf("%s: %v", rule, err)
			}
			sameAs(t, before, read(t, d))
			o := planted(func(o *Options) { o.Config.Exceptions = []Exception{{Rule: rule, Why: "test"}} })
			if _, err := Seal(t.Context(), d, o); err != nil {
				t.Errorf("%s with an exception: %v", rule, err)
			}
		})
	}
}

// firstTwo are the components of a name that every pattern has.
func firstTwo(name string) string { return strings.Join(strings.SplitN(name, "/", 3)[:2], "/") }

// TestPurge: what was set aside is overwritten before it is removed, also through a second handle;
// a file with a second name is left alone.
func TestPurge(t *testing.T) {
	d := plant(t)
	open, err := os.Open(d.Host("etc/ssh/ssh_host_ed25519_key"))
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if err := os.Link(d.Host("var/log/wtmp"), d.Host("home/u/wtmp")); err != nil {
		t.Fatal(err)
	}
	if _, err := Seal(t.Context(), d, planted(nil)); err != nil {
		t.Fatal(err)
	}
	if info, err := open.Stat(); err != nil || info.Size() != 0 {
		t.Errorf("the key's file has %d bytes, %v", info.Size(), err)
	}
	if got := d.Text("home/u/wtmp"); got != "x" {
		t.Errorf("the file with a second name: %q", got)
	}
}

func TestReceipt(t *testing.T) {
	d := plant(t)
	r, err := Seal(t.Context(), d, planted(nil))
	if err != nil {
		t.Fatal(err)
	}
	short := r.Short()
	if len(short.Rules) != 0 || short.RuleCount != len(r.Rules) || short.Hash != r.Hash || short.VMID != donorVM || short.Run != "r1" {
		t.Errorf("short receipt %+v", short)
	}
	for range 2 {
		if err := Retire(d, r); err != nil {
			t.Fatal(err)
		}
	}
	if lines := strings.Count(d.Text(LineagePath), "\n") + 1; lines != 1 || d.Exists(ReceiptPath) {
		t.Errorf("%d lines of lineage, receipt there: %v", lines, d.Exists(ReceiptPath))
	}
	plantFile(t, d.Dir(), ReceiptPath, strings.Replace(d.Text(LineagePath), `"r1"`, `"r2"`, 1))
	if _, ok, err := ReadReceipt(d); !ok || err == nil || !strings.Contains(err.Error(), "changed after the seal") {
		t.Errorf("a changed receipt: %v, %v", ok, err)
	}
}

// TestSecondPartition: what lies on another file system of the disk is set aside there, comes back,
// and goes.
func TestSecondPartition(t *testing.T) {
	needImages(t, "ext4", "xfs")
	device := partitioned(t, 16, 24)
	format(t, "ext4", device+"p1")
	format(t, "xfs", device+"p2")
	root := filepath.Join(scratch(t), "root")
	mount(t, device+"p1", root, "ext4", 0)
	plantFile(t, root, "var/log/syslog", "under the partition\n")
	mount(t, device+"p2", filepath.Join(root, "var"), "xfs", 0)
	donorTree(t, root)
	plantFile(t, root, "var/log/syslog", "kubelet: Authorization: Bearer abcdefghijklmnop\n")
	if err := errors.Join(os.Link(root+"/var/log/syslog", root+"/var/log/syslog.1"), os.Remove(root+"/var/lib/images/x")); err != nil {
		t.Fatal(err)
	}
	d, err := disk.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := Seal(t.Context(), d, planted(nil)); err == nil || !strings.Contains(err.Error(), "under what is mounted at /var: /var/log/syslog;") {
		t.Errorf("a file under a partition: %v", err)
	}
	bare := filepath.Join(scratch(t), "bare")
	off := mount(t, root, bare, "", syscall.MS_BIND)
	if err := os.Remove(filepath.Join(bare, "var/log/syslog")); err != nil {
		t.Fatal(err)
	}
	off()
	before := read(t, d)
	if _, err := Seal(t.Context(), d, planted(func(o *Options) { o.InterruptAfter = "machine-id" })); !errors.Is(err, ErrInterrupted) {
		t.Fatal(err)
	}
	if d.Exists("var/log/syslog") || !d.Exists("var/lib/kamino/aside") {
		t.Error("a log on the other file system is still there")
	}
	if _, err := Unseal(d); err != nil {
		t.Fatal(err)
	}
	delete(before, "var/lib")
	after := read(t, d)
	delete(after, "var/lib")
	sameAs(t, before, after)
	r, err := Seal(t.Context(), d, planted(nil))
	if err != nil || r.Hash == "" {
		t.Fatal(err)
	}
	for _, gone := range []string{"var/log/syslog", "etc/hostname", asideDir, asideElse, "var/" + asideElse} {
		if d.Exists(gone) {
			t.Errorf("/%s is still there", gone)
		}
	}
}
