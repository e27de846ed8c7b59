package machines

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/internal/bench"
)

// genericPool keeps the model that pool1 had before kamino update.
const genericPool = "pool2"

// floorScript leaves of a clone what a node needs and nothing else: kernel,
// systemd, network, containerd and kubelet, with everything in place. Capturing
// goes on, after the boot.
const floorScript = `
rm -f /etc/systemd/system/kubelet.service.d/00-kamino.conf
for u in kamino-identity kamino-boot kamino-ssh-keys kamino-watch kamino-capture lab-extensions ssh unattended-upgrades cron; do
  systemctl --no-reload disable --quiet $u.service 2>/dev/null
  systemctl --no-reload mask --quiet $u.service 2>/dev/null
done
systemctl --no-reload mask --quiet systemd-networkd-wait-online.service kamino-ssh-rsa.timer
sync
`

// boot is one that was measured, from power on.
type boot struct {
	ready, pod time.Duration
	capture    string // file
	hung       bool   // QEMU hung, and the machine was reset
}

// typical is the boot with the median time to Ready.
func typical(boots []boot) boot {
	sorted := slices.SortedFunc(slices.Values(boots), func(a, b boot) int { return cmp.Compare(a.ready, b.ready) })
	return sorted[len(sorted)/2]
}

// measuring is one run of the measurement.
type measuring struct {
	*testing.T
	*Stage
	boots int
	out   string // directory
	taken int    // captures written so far
}

// TestBenchMachines measures boots side by side, in one run: generic machines,
// clones, and the floor. make bench-vm runs it; each figure is a line BENCH.
func TestBenchMachines(t *testing.T) {
	bench.Need(t)
	l := startLab(t, func(o *Options) {
		o.GenericPool = genericPool
		o.Arguments = func(emulator.Instance) string { return "systemd.wants=lab-capture.service" }
	})
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Hour)
	defer cancel()
	b := &measuring{T: t, Stage: &Stage{Lab: l, Out: os.Stderr}, boots: 5, out: os.Getenv("OUT")}
	if n, err := strconv.Atoi(os.Getenv("KAMINO_BENCH_BOOTS")); err == nil && n > 0 {
		b.boots = n
	}
	if b.out == "" {
		at, err := FindLab()
		b.must(err)
		b.out = filepath.Join(at, "out")
	}
	b.must(b.createProbe(ctx))
	b.must(b.Join(ctx))
	b.must(b.Patch(ctx))
	b.must(b.Prototype(ctx, 0))
	bench.Figure("vm-donor-away", b.Result.AwaySeconds, "s", 600)
	var stopCopyStart, build float64
	for _, step := range b.Result.Steps {
		switch step.Name {
		case "stop", "snapshot", "start":
			stopCopyStart += step.Seconds
		case "image":
			build = step.Seconds
		}
	}
	bench.Figure("vm-donor-away-against-stop-copy-start", b.Result.AwaySeconds/max(stopCopyStart, 0.1), "times", 2)
	bench.Figure("vm-image-build", build, "s", 120)
	image, err := os.Stat(b.Factory.artifact(b.Result.Image))
	b.must(err)
	bench.Figure("vm-image-size", float64(image.Size())/1e6, "MB", 400)

	b.must(b.switchTo(ctx, b.Donor, "powerOff", emulator.PowerStopped)) // two cores emulate four processors badly
	// In turn, not one kind after the other: the host's speed drifts, and hits the boots of a round
	// alike.
	stripped := b.strip(ctx)
	var generic, clone, floor []boot
	for range b.boots {
		generic = append(generic, b.sound(func() boot { return b.grow(ctx, genericPool, "generic") }))
		clone = append(clone, b.sound(func() boot { return b.grow(ctx, PoolName, "clone") }))
		floor = append(floor, b.sound(func() boot { return b.restart(ctx, stripped, "floor") }))
	}
	b.print("generic", generic, 600)
	b.print("clone", clone, 150)
	b.print("floor", floor, 120)
	bench.Figure("vm-clone-of-generic", ratio(clone, generic), "times", 0.25)
	bench.Figure("vm-clone-of-floor", ratio(clone, floor), "times", 1.25)
	b.plot("generic", generic)
	b.plot("clone", clone)
	b.plot("floor", floor)
	b.compare("generic-clone", typical(generic), typical(clone))
	b.compare("floor-clone", typical(floor), typical(clone))
}

func (b *measuring) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// median is the one in the middle, the later of two.
func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

// ratio is the median over the rounds of how long one kind took to be Ready, against the other.
func ratio(of, to []boot) float64 {
	all := make([]float64, len(of))
	for i := range of {
		all[i] = of[i].ready.Seconds() / to[i].ready.Seconds()
	}
	return median(all)
}

// print writes the medians of a kind.
func (b *measuring) print(kind string, boots []boot, bound float64) {
	var ready, pod []float64
	for _, one := range boots {
		ready, pod = append(ready, one.ready.Seconds()), append(pod, one.pod.Seconds())
	}
	bench.Figure("vm-ready-"+kind, median(ready), "s", bound)
	bench.Figure("vm-first-pod-"+kind, median(pod), "s", bound+30)
}

// sound measures until QEMU has not hung.
func (b *measuring) sound(measure func() boot) boot {
	for {
		one := measure()
		if !one.hung {
			return one
		}
		b.Log("QEMU hung; this boot does not count")
	}
}

// grow adds a machine to a pool, measures it, and removes it.
func (b *measuring) grow(ctx context.Context, pool, kind string) boot {
	b.must(b.quiet(ctx))
	known, capacity := map[string]bool{}, 1
	for _, i := range b.Cloud.Instances() {
		known[i.ID] = true
		if i.Pool == pool {
			capacity++
		}
	}
	b.must(b.arm(ctx, "PATCH", b.Scenario.PoolID(pool), fmt.Sprintf(`{"sku":{"capacity":%d}}`, capacity)))
	var born emulator.Instance
	b.must(b.await(ctx, "a new machine", func() (bool, error) {
		for _, i := range b.Cloud.Instances() {
			if !known[i.ID] {
				born = i
			}
		}
		return born.ID != "", nil
	}))
	measured := b.measure(ctx, born, kind)
	b.must(b.settle(ctx, born))
	b.must(b.arm(ctx, "DELETE", born.ID, ""))
	b.must(b.await(ctx, "the end of "+born.Name, func() (bool, error) {
		_, there := b.Cloud.Instance(born.ID)
		return !there, nil
	}))
	return measured
}

// quiet waits until the host has done little for five seconds: the end of the machine before gives
// work to the control plane. Work at a lower priority counts as idle: it yields to the machines, so
// that the bench also runs on a slowed host.
func (b *measuring) quiet(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	var history []hostTime
	return b.await(limited, "a quiet host", func() (bool, error) {
		now, err := readHostTime()
		history = append(history, now)
		if len(history) <= 10 { // two a second
			return false, err
		}
		then := history[len(history)-11]
		return now.idle-then.idle > (now.all-then.all)*8/10, err
	})
}

// hostTime is what the host's processors have spent since it started, in ticks (proc_stat(5)).
type hostTime struct{ idle, all uint64 }

func readHostTime() (t hostTime, err error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return t, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	for column, field := range strings.Fields(line)[1:9] { // user nice system idle iowait irq softirq steal
		ticks, err := strconv.ParseUint(field, 10, 64)
		if err != nil {
			return t, fmt.Errorf("decode /proc/stat: %w", err)
		}
		t.all += ticks
		if column == 1 || column == 3 || column == 4 { // nice, idle, iowait
			t.idle += ticks
		}
	}
	return t, nil
}

// strip makes a clone the floor, and switches it off.
func (b *measuring) strip(ctx context.Context) emulator.Instance {
	b.must(b.ScaleOut(ctx, 2))
	i := b.Clone[len(b.Clone)-1]
	_, _, err := b.Stage.Run(ctx, i, floorScript)
	b.must(err)
	b.must(b.switchTo(ctx, i, "powerOff", emulator.PowerStopped))
	return i
}

// restart measures the boot of a machine that is off, and switches it off again.
func (b *measuring) restart(ctx context.Context, i emulator.Instance, kind string) boot {
	b.must(b.quiet(ctx))
	b.must(b.switchTo(ctx, i, "start", emulator.PowerRunning))
	measured := b.measure(ctx, i, kind)
	b.must(b.switchTo(ctx, i, "powerOff", emulator.PowerStopped))
	return measured
}

// switchTo asks ARM for a power state and waits for it.
func (b *measuring) switchTo(ctx context.Context, i emulator.Instance, action, want string) error {
	if err := b.arm(ctx, "POST", i.ID+"/"+action, ""); err != nil {
		return err
	}
	return b.await(ctx, i.Name+" to be "+want, func() (bool, error) {
		now, _ := b.Cloud.Instance(i.ID)
		return now.PowerState == want && now.State == "Succeeded", nil
	})
}

// measure waits for Ready, for the probe's pod, and for the capture.
func (b *measuring) measure(ctx context.Context, i emulator.Instance, kind string) boot {
	ready, err := b.AwaitReady(ctx, i, patienceGeneric)
	b.must(err)
	m, err := b.Factory.find(i)
	b.must(err)
	m.mu.Lock()
	begun := m.begun
	m.mu.Unlock()
	b.must(b.await(ctx, "the first pod on "+i.Name, func() (bool, error) {
		pods, err := b.Client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: "app=probe",
			FieldSelector: "spec.nodeName=" + strings.ToLower(i.ComputerName)})
		if err != nil {
			return false, err
		}
		return slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return runsSince(p, begun) }), nil
	}))
	pod := time.Since(begun)
	file := b.capture(ctx, m, begun, kind)
	b.Logf("%s %s: Ready %s, first pod %s", kind, i.Name, ready.Round(100*time.Millisecond), pod.Round(100*time.Millisecond))
	m.mu.Lock()
	defer m.mu.Unlock()
	return boot{ready, pod, file, m.hung}
}

// runsSince is a pod whose containers were started after a time; the API has whole seconds.
func runsSince(p corev1.Pod, since time.Time) bool {
	return p.Status.PodIP != "" && len(p.Status.ContainerStatuses) > 0 && !slices.ContainsFunc(p.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.State.Running == nil || c.State.Running.StartedAt.Time.Before(since.Truncate(time.Second))
	})
}

// capture writes what the machine recorded of the boot that began then, and says
// where. Others send theirs meanwhile, the donor too.
func (b *measuring) capture(ctx context.Context, m *machine, begun time.Time, kind string) string {
	limited, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	var taken Capture
	err := b.await(limited, "the capture of "+m.Name, func() (bool, error) {
		all := b.Captures()
		i := slices.IndexFunc(all, func(c Capture) bool { return c.From == m.Port.Address.Addr().String() && c.At.After(begun) })
		if i >= 0 {
			taken = all[i]
		}
		return i >= 0, nil
	})
	if err != nil {
		b.Errorf("%v; console:\n%s", err, tail(m.Console, 15))
		return ""
	}
	dir := filepath.Join(b.out, kind)
	b.must(os.MkdirAll(dir, 0o755))
	b.taken++
	file := filepath.Join(dir, fmt.Sprintf("%02d.json", b.taken))
	b.must(os.WriteFile(file, taken.Data, 0o644))
	return file
}

// compare lets the product say where the time went, as text and as a page.
func (b *measuring) compare(name string, from, to boot) {
	text := b.analyse(name+".txt", "compare", from.capture, to.capture)
	b.Logf("%s:\n%s", name, text)
	b.analyse(name+".html", "compare", from.capture, to.capture, "-o", "html")
}

// plot draws the typical boot of a kind.
func (b *measuring) plot(kind string, boots []boot) {
	b.analyse(kind+".svg", "plot", typical(boots).capture, "-o", "svg")
}

// analyse writes into a file what kamino boot says.
func (b *measuring) analyse(name string, args ...string) []byte {
	out, err := exec.Command(b.opts.Binaries.Kamino, append([]string{"boot"}, args...)...).CombinedOutput()
	if err != nil {
		b.Errorf("kamino boot %s: %v: %s", args[0], err, out)
		return nil
	}
	file := filepath.Join(b.out, name)
	b.must(os.WriteFile(file, out, 0o644))
	b.Logf("written: %s", file)
	return out
}

// createProbe starts a pod on every node, of which the first second counts.
func (b *measuring) createProbe(ctx context.Context) error {
	labels := map[string]string{"app": "probe"}
	none := int64(0)
	_, err := b.Client.AppsV1().DaemonSets(metav1.NamespaceDefault).Create(ctx, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "probe"},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &none,
				Containers: []corev1.Container{{Name: "server", Image: GuestImage, ImagePullPolicy: corev1.PullIfNotPresent, Command: []string{"/guest", "serve"}}}}}}},
		metav1.CreateOptions{})
	return err
}
