package machines

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kamino.dev/kamino"
	"kamino.dev/kamino/agent/firstboot"
	"kamino.dev/kamino/agent/nodeconfig"
	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/poolstate"
)

// planted are secrets that a user of the donor might leave there, where the rules find them.
var planted = map[string][]byte{
	"planted kubeconfig token": []byte("planted-kubeconfig-token-5f1c"),
	"planted shell history":    []byte("planted-history-password-9a37"),
	"planted ssh key":          []byte("cGxhbnRlZC1zc2gta2V5LTRkMWI"),
	"planted pod log":          []byte("planted-pod-log-secret-77e2"),
	"planted and deleted":      []byte("planted-deleted-secret-c0de"),
}

const plantScript = `
mkdir -p /root/.kube /var/log/pods/default_old_1/server
echo "token: planted-kubeconfig-token-5f1c" >/root/.kube/config
echo "mysql -pplanted-history-password-9a37" >/root/.bash_history
umask 077; mkdir -p /home/azureuser/.ssh
printf -- '-----BEGIN OPENSSH PRIVATE KEY-----\ncGxhbnRlZC1zc2gta2V5LTRkMWI\n-----END OPENSSH PRIVATE KEY-----\n' >/home/azureuser/.ssh/id_ed25519
echo "login planted-pod-log-secret-77e2" >/var/log/pods/default_old_1/server/0.log
yes "planted-deleted-secret-c0de" | head -c 300000 >/root/deleted; sync; rm /root/deleted; sync
`

// TestPrototype is the product on machines that really boot. One lab for all of
// it: a generic machine takes minutes.
func TestPrototype(t *testing.T) {
	l := startLab(t, func(o *Options) { o.Labels = map[string]string{"lab.kamino.dev/generation": "1"} })
	ctx, cancel := context.WithTimeout(t.Context(), 110*time.Minute)
	defer cancel()
	s := &Stage{Lab: l, Out: os.Stderr}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.Join(ctx))
	must(s.Work(ctx, 2))
	must(s.Patch(ctx))
	_, _, err := s.Run(ctx, s.Donor, plantScript)
	must(err)
	before, err := s.Inspect(ctx, s.Donor)
	must(err)
	secrets, err := s.Secrets(ctx, s.Donor)
	must(err)
	if len(secrets) < 5 {
		t.Fatalf("only %d secrets of the donor are known", len(secrets))
	}

	t.Run("kamino is killed while the donor is off", func(t *testing.T) { killWhileOff(ctx, t, s) })
	// The next run finds the unfinished one and finishes it.
	must(s.Prototype(ctx, 1))
	must(s.ScaleOut(ctx, len(s.Cloud.Instances())+1))
	if len(s.Clone) < 2 {
		t.Fatalf("%d clones, want 2", len(s.Clone))
	}
	must(s.Working(ctx, 2))
	t.Run("identities differ", func(t *testing.T) { compareMachines(ctx, t, s, before) })
	t.Run("each runs pods with their own addresses", func(t *testing.T) { ownAddresses(ctx, t, s) })
	t.Run("the image holds no secret", func(t *testing.T) {
		for name, text := range planted {
			secrets[name] = text
		}
		found, err := s.FindInImage(ctx, s.Clone[0].ImageID, secrets)
		must(err)
		for name, n := range found {
			if n > 0 {
				t.Errorf("%s is in the image %d times", name, n)
			}
		}
		// The search can find: what is public is there.
		public, err := s.FindInImage(ctx, s.Clone[0].ImageID, map[string][]byte{"cluster's CA": l.ControlPlane.CA[30:90]})
		must(err)
		if public["cluster's CA"] == 0 {
			t.Error("the search does not find what is in the image")
		}
	})
	t.Run("in-place update", func(t *testing.T) { updateInPlace(ctx, t, s) })
	t.Run("sshd has its RSA key later", func(t *testing.T) {
		must(s.await(ctx, "the key", func() (bool, error) {
			out, _, err := s.Run(ctx, s.Clone[0], "ssh-keyscan -t rsa 127.0.0.1 2>/dev/null")
			var exit *ExitError
			if errors.As(err, &exit) {
				return false, nil
			}
			return strings.Contains(out, "ssh-rsa"), err
		}))
	})
	t.Run("a good image is proved by a canary", func(t *testing.T) { proveGood(ctx, t, s) })
	t.Run("the boot of a clone is recorded", func(t *testing.T) { recordedBoots(ctx, t, s) })
	t.Run("a donor without a seal is refused", func(t *testing.T) { refuseUnsealed(ctx, t, s) })
	t.Run("an image without a kubelet stays out of the pool", func(t *testing.T) {
		if os.Getenv("KAMINO_VM") != "all" {
			t.Skip("make test-vm-all proves a bad image, too")
		}
		proveBad(ctx, t, s)
	})
}

// refuseUnsealed lets a seal pod run that only switches off.
func refuseUnsealed(ctx context.Context, t *testing.T, s *Stage) {
	made := func() (ids []string) {
		for _, e := range s.Cloud.State() {
			if id := strings.ToLower(e.ID); strings.Contains(id, "/versions/") || strings.Contains(id, "/snapshots/") {
				ids = append(ids, id)
			}
		}
		slices.Sort(ids)
		return ids
	}
	before := made()
	args := append(s.UpdateArgs(0), "--again")
	for i, a := range args {
		if a == s.Images.Kamino {
			args[i] = s.Images.Unsealed
		}
	}
	out, err := s.Command(ctx, args...).Output()
	if err == nil {
		t.Fatalf("kamino update took a donor that was not sealed: %s", out)
	}
	var u Update
	if err := json.Unmarshal(out, &u); err != nil {
		t.Fatalf("no JSON: %v: %s", err, out)
	}
	t.Logf("refused: %s", u.Error)
	if now := made(); !slices.Equal(now, before) {
		t.Errorf("with a donor that was not sealed there are %v, and were %v", now, before)
	}
	awaitDonor(ctx, t, s)
}

// TestGenericBoot: the first run of a pool, whose donor was never restarted, tells how long a
// generic machine boots.
func TestGenericBoot(t *testing.T) {
	needVM(t)
	if os.Getenv("KAMINO_VM") != "all" {
		t.Skip("make test-vm-all looks at the boot of a generic machine, too")
	}
	s := &Stage{Lab: startLab(t, nil), Out: os.Stderr}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Minute)
	defer cancel()
	if err := s.Join(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.Prototype(ctx, 0); err != nil {
		t.Fatal(err)
	}
	b := boots(ctx, t, s)
	if b.Generic == nil {
		t.Fatal("no boot of a generic machine")
	}
	if donor := strings.ToLower(s.Donor.ComputerName); b.Generic.Node != donor {
		t.Errorf("the boot is told of %s, not of the donor %s", b.Generic.Node, donor)
	}
	began(t, b.Generic, "kernel", "container runtime")
	t.Logf("%+v", b.Generic.Timing)
}

// boots are those that the ledger of the pool has.
func boots(ctx context.Context, t *testing.T, s *Stage) *kamino.Boots {
	t.Helper()
	out, err := s.Command(ctx, "status", "-o", "json").Output()
	var pools []poolstate.PoolStatus
	if err != nil || json.Unmarshal(out, &pools) != nil || len(pools) != 1 || pools[0].Boots == nil {
		t.Fatalf("%v: %s", err, out)
	}
	return pools[0].Boots
}

// began: the boot tells of these phases when they began; all but the kernel's later than it.
func began(t *testing.T, w *kamino.Waterfall, phases ...string) {
	t.Helper()
	for _, phase := range phases {
		if start, told := w.Starts[phase]; !told || start < 0 || phase != "kernel" && start == 0 {
			t.Errorf("phase %s began at %g (told: %t): %+v", phase, start, told, w.Timing)
		}
	}
}

// recordedBoots: the ledger has the boot of the canary, with when its phases began, and none of the
// donor, which was restarted after its patch.
func recordedBoots(ctx context.Context, t *testing.T, s *Stage) {
	b := boots(ctx, t, s)
	if b.Clone == nil {
		t.Fatal("no boot of a clone")
	}
	began(t, b.Clone, "kernel", "container runtime", "agent identity")
	if b.Generic != nil {
		t.Errorf("the boot after a patch is told as one of a generic machine: %+v", b.Generic)
	}
}

// awaitDonor waits until the donor is a Ready node that takes pods.
func awaitDonor(ctx context.Context, t *testing.T, s *Stage) {
	t.Helper()
	if err := s.back(ctx, s.Donor); err != nil {
		t.Fatal(err)
	}
}

func killWhileOff(ctx context.Context, t *testing.T, s *Stage) {
	cmd := s.Command(ctx, s.UpdateArgs(1)...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	err := s.await(ctx, "the donor to be off", func() (bool, error) {
		i, _ := s.Cloud.Instance(s.Donor.ID)
		return i.PowerState == emulator.PowerStopped || i.PowerState == emulator.PowerDeallocated, nil
	})
	_ = cmd.Process.Signal(syscall.SIGKILL) // it may have ended: then Wait says so
	waitErr := cmd.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if waitErr == nil {
		t.Fatal("kamino ended before it was killed")
	}
	t.Log("killed; the donor is off")
}

func compareMachines(ctx context.Context, t *testing.T, s *Stage, before Identity) {
	var names []string
	var ids []Identity
	for n, i := range append([]emulator.Instance{s.Donor}, s.Clone...) {
		id, err := s.Inspect(ctx, i)
		if err != nil {
			t.Fatal(err)
		}
		if id.Patch != "2.0" {
			t.Errorf("%s has version %q of the patched package", i.Name, id.Patch)
		}
		if !strings.Contains(id.Ancestry, strings.ToLower(s.Donor.ComputerName)) {
			t.Errorf("ancestry of %s does not name the donor: %q", i.Name, id.Ancestry)
		}
		if !strings.Contains(id.Images, GuestImage) {
			t.Errorf("%s lacks the donor's container image: %s", i.Name, id.Images)
		}
		if n == 0 { // its own instance still has the extension, which finds its work done
			id.Extensions = ""
		}
		for _, wrong := range id.notFast(i.Name) {
			t.Error(wrong)
		}
		names, ids = append(names, i.Name), append(ids, id)
	}
	for _, twin := range Twins(names, ids) {
		t.Error(twin)
	}
	// The donor came back as the first clone: it keeps what follows from its virtual machine, and
	// no secret.
	if after := ids[0]; after.HostName != before.HostName || after.MAC != before.MAC {
		t.Errorf("the donor was %s at %s and is %s at %s", before.HostName, before.MAC, after.HostName, after.MAC)
	}
	for what, pair := range map[string][2]string{"ssh host key": {before.HostKey, ids[0].HostKey}, "client certificate": {before.Certificate, ids[0].Certificate},
		"random seed": {before.Seed, ids[0].Seed}} {
		if pair[0] == pair[1] {
			t.Errorf("the donor came back with its old %s", what)
		}
	}
}

func ownAddresses(ctx context.Context, t *testing.T, s *Stage) {
	seen := map[string]string{}
	for _, i := range append([]emulator.Instance{s.Donor}, s.Clone...) {
		node := strings.ToLower(i.ComputerName)
		pod := "probe-" + node
		_, err := s.Client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod},
			Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "server", Image: GuestImage, ImagePullPolicy: corev1.PullNever, Command: []string{"/guest", "serve"}}}}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { // no controller would recreate it: no later run could drain its node
			if err := s.Client.CoreV1().Pods(metav1.NamespaceDefault).Delete(ctx, pod, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
				t.Error(err)
			}
		})
		var ip string
		err = s.await(ctx, "pod "+pod, func() (bool, error) {
			p, err := s.Client.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, pod, metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			ip = p.Status.PodIP
			return p.Status.Phase == corev1.PodRunning && ip != "", nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if other := seen[ip]; other != "" {
			t.Errorf("%s and %s have the address %s", other, pod, ip)
		}
		seen[ip] = pod
	}
}

// updateInPlace changes the configuration of a living clone through ARM, tries to break it, and
// interrupts the trials of good documents: the agent restarts, and in test-vm-all the machine. Each
// part can be run without the others.
func updateInPlace(ctx context.Context, t *testing.T, s *Stage) {
	clone := s.Clone[0]
	inspect := func(t *testing.T) Identity {
		t.Helper()
		id, err := s.Inspect(ctx, clone)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	offer := func(t *testing.T, userData string) {
		t.Helper()
		if err := s.SetUserData(ctx, clone, userData); err != nil {
			t.Fatal(err)
		}
	}
	labelled := func(t *testing.T, want string) {
		t.Helper()
		if err := s.await(ctx, "label "+want, func() (bool, error) {
			n, err := s.node(ctx, clone)
			return err == nil && n.Labels["lab.kamino.dev/generation"] == want && isReady(n, time.Now().Add(-time.Minute)), err
		}); err != nil {
			t.Fatal(err)
		}
	}
	interrupt := func(t *testing.T, generation int, command string) {
		t.Helper()
		want := strconv.Itoa(generation)
		// Labels alone restart nothing, and need no trial.
		offer(t, encode(s.join.document(generation, map[string]string{"lab.kamino.dev/generation": want})+fmt.Sprintf("  config:\n    maxPods: %d\n", 50+generation)))
		for trial := false; !trial; {
			// Each look is shorter than an SSH session may last.
			out, _, err := s.Run(ctx, clone, "for i in $(seq 200); do [ -e /"+nodeconfig.FormerPath+" ] && { "+command+"; echo trial; exit; }; sleep 0.1; done")
			if trial = strings.Contains(out, "trial"); err != nil && !trial {
				t.Fatal(err)
			}
		}
		labelled(t, want)
	}
	before := inspect(t)
	t.Run("a good document", func(t *testing.T) {
		offer(t, s.UserData(2, map[string]string{"lab.kamino.dev/generation": "2"}))
		labelled(t, "2")
	})
	t.Run("a bad document", func(t *testing.T) {
		broken := s.join
		broken.Endpoint = "https://10.1.0.254:1"
		former, err := s.node(ctx, clone)
		if err != nil {
			t.Fatal(err)
		}
		offer(t, encode(broken.document(3, map[string]string{"lab.kamino.dev/generation": "3"})+"  config:\n    evictionHard: {\"no.such.signal\": \"1\"}\n"))
		if err := s.await(ctx, "the refusal of broken user data", func() (bool, error) {
			state, err := s.configState(ctx, clone)
			return state.Status == firstboot.StatusRolledBack, err
		}); err != nil {
			t.Fatal(err)
		}
		labelled(t, former.Labels["lab.kamino.dev/generation"])
	})
	t.Run("the agent restarts in a trial", func(t *testing.T) {
		interrupt(t, 4, "systemctl restart kamino-watch.service")
		if after := inspect(t); before.BootID != after.BootID || before.MachineID != after.MachineID {
			t.Error("the clone was rebooted or made anew")
		}
	})
	t.Run("the machine restarts in a trial", func(t *testing.T) {
		if os.Getenv("KAMINO_VM") != "all" {
			t.Skip("make test-vm-all restarts the machine, too, which takes minutes")
		}
		interrupt(t, 5, "systemctl --no-block reboot")
		if after := inspect(t); after.BootID == before.BootID || after.MachineID != before.MachineID {
			t.Error("the clone did not restart, or was made anew")
		}
		if err := s.await(ctx, "the document to be in force", func() (bool, error) { // the state is written after the label
			state, err := s.configState(ctx, clone)
			return state.Generation == 5 && state.Status == firstboot.StatusApplied && state.Trial == nil, err
		}); err != nil {
			t.Error(err)
		}
	})
}

// configState is what the agent of an instance keeps of its configuration; the zero value before there
// is one, or where it cannot be read for now.
func (s *Stage) configState(ctx context.Context, i emulator.Instance) (state firstboot.State, err error) {
	out, _, err := s.Run(ctx, i, "cat /var/lib/kamino/config.json")
	var exit *ExitError
	if errors.As(err, &exit) {
		return state, nil
	}
	if err == nil {
		err = json.Unmarshal([]byte(out), &state)
	}
	return state, err
}
