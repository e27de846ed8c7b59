package machines

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/engine"
)

// Patience with machines: they are emulated processors, often on a busy machine.
const (
	patienceGeneric = 25 * time.Minute
	patienceClone   = 15 * time.Minute
)

// Stage plays the main job on real machines, step by step; the demonstration and
// the tests share it.
type Stage struct {
	*Lab
	Out   io.Writer // progress, for people
	Donor emulator.Instance
	Clone []emulator.Instance

	Joined   time.Duration // of the generic machine, power on to Ready
	Cloned   []time.Duration
	Result   Update
	Rebooted time.Duration
}

// Update is what kamino update said of itself.
type Update struct {
	OK    bool   `json:"ok"`
	Error string `json:"error"`
	engine.Result
}

func (s *Stage) say(format string, args ...any) { fmt.Fprintf(s.Out, "demo: "+format+"\n", args...) }

// Join waits for the pool's generic machines; the first of them is the donor.
func (s *Stage) Join(ctx context.Context) error {
	all := s.Cloud.Instances()
	if len(all) == 0 {
		return errors.New("the pool has no instance")
	}
	s.Donor = all[0]
	s.say("%s boots Debian, and its extension makes it a node", s.Donor.Name)
	var err error
	if s.Joined, err = s.AwaitReady(ctx, s.Donor, patienceGeneric); err != nil {
		return err
	}
	s.say("%s is Ready %s after power on", s.Donor.Name, s.Joined.Round(time.Second))
	for _, i := range all[1:] {
		if _, err := s.AwaitReady(ctx, i, patienceGeneric); err != nil {
			return err
		}
		s.say("%s is Ready, too", i.Name)
	}
	for _, i := range all {
		if err := s.settle(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// settle waits until the platform knows that the instance is there.
func (s *Stage) settle(ctx context.Context, i emulator.Instance) error {
	return s.await(ctx, "instance "+i.Name+" to be Succeeded", func() (bool, error) {
		now, ok := s.Cloud.Instance(i.ID)
		if !ok || now.State == "Failed" {
			return false, fmt.Errorf("instance %s failed; the end of its console:\n%s", i.Name, s.Console(i, 25))
		}
		return now.State == "Succeeded", nil
	})
}

// Console is the end of an instance's serial console.
func (l *Lab) Console(i emulator.Instance, lines int) string {
	m, err := l.Factory.find(i)
	if err != nil {
		return err.Error()
	}
	return tail(m.Console, lines)
}

// await asks twice a second, at most for as long as the slowest of these waits may take.
func (l *Lab) await(ctx context.Context, what string, holds func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	for {
		ok, err := holds()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, ctx.Err())
		case <-ticker.C:
		}
	}
}

// Work starts a workload of real containers and waits for its pods.
func (s *Stage) Work(ctx context.Context, replicas int) error {
	labels := map[string]string{"app": "web"}
	field := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
	}
	count, grace := int32(replicas), int64(5)
	_, err := s.Client.AppsV1().Deployments(metav1.NamespaceDefault).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{Replicas: &count, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				TerminationGracePeriodSeconds: &grace,
				TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: corev1.LabelHostname,
					WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: &metav1.LabelSelector{MatchLabels: labels}}},
				Containers: []corev1.Container{{Name: "server", Image: GuestImage, ImagePullPolicy: corev1.PullIfNotPresent,
					Command: []string{"/guest", "serve"},
					Env: []corev1.EnvVar{{Name: "POD_NAME", ValueFrom: field("metadata.name")},
						{Name: "POD_IP", ValueFrom: field("status.podIP")},
						{Name: "NODE_NAME", ValueFrom: field("spec.nodeName")}}}},
			}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create workload: %w", err)
	}
	s.say("a workload of %d pods starts", replicas)
	return s.Working(ctx, replicas)
}

// Working waits until that many pods of the workload run.
func (s *Stage) Working(ctx context.Context, replicas int) error {
	return s.await(ctx, "the workload", func() (bool, error) {
		pods, err := s.Pods(ctx, "")
		return len(pods) >= replicas, err
	})
}

// Pods of the workload that are Ready, on one node or on all.
func (s *Stage) Pods(ctx context.Context, node string) ([]corev1.Pod, error) {
	list, err := s.Client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool {
		ready := slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
		return !ready || p.DeletionTimestamp != nil || node != "" && p.Spec.NodeName != node
	}), nil
}

// Patch updates a package of the donor from the repository; the package asks for
// a reboot, and gets it.
func (s *Stage) Patch(ctx context.Context) error {
	if err := s.Publish(published); err != nil {
		return err
	}
	before, err := s.node(ctx, s.Donor)
	if err != nil {
		return err
	}
	s.say("%s is patched: apt-get upgrade", s.Donor.Name)
	out, _, err := s.Run(ctx, s.Donor, "apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q -y upgrade && cat /run/reboot-required.pkgs && cat /usr/share/lab-tool/version")
	if err != nil {
		return err
	}
	if !strings.HasSuffix(out, "lab-tool\n2.0\n") {
		return fmt.Errorf("the patch asks for no reboot, or is not there:\n%s", out)
	}
	s.say("the patch requires a reboot: %s reboots", s.Donor.Name)
	began := time.Now()
	if _, _, err := s.Run(ctx, s.Donor, "systemctl reboot"); err != nil {
		s.say("(the connection ended with the machine: %v)", err)
	}
	err = s.await(ctx, s.Donor.Name+" to come back", func() (bool, error) {
		n, err := s.node(ctx, s.Donor)
		return err == nil && n.Status.NodeInfo.BootID != before.Status.NodeInfo.BootID && isReady(n, began), err
	})
	s.Rebooted = time.Since(began)
	return err
}

func (s *Stage) node(ctx context.Context, i emulator.Instance) (*corev1.Node, error) {
	return s.Client.CoreV1().Nodes().Get(ctx, strings.ToLower(i.ComputerName), metav1.GetOptions{})
}

// policy allows what the lab's image brings.
//
//go:embed policy.yaml
var policy string

// Command is the product, as a user of this lab would call it. The caller sees its output.
func (s *Stage) Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.opts.Binaries.Kamino, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Minute // giving the donor back takes a while
	cmd.Env = append(os.Environ(), "SEAL_POLICY="+policy)
	for name, value := range s.Environment() {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	return cmd
}

// UpdateArgs of kamino update for the donor and that many new nodes, without a proof: each canary
// is one more machine to boot.
func (s *Stage) UpdateArgs(nodes int) []string {
	return []string{"update", "--target-node", strings.ToLower(s.Donor.ComputerName), "--new-updated-nodes",
		fmt.Sprint(nodes), "--prove", "none",
		"--grace-period", "30", "--image", s.Images.Kamino, "-o", "json"}
}

// Prototype runs kamino update: the donor becomes the image of its pool, and
// nodes are made from it.
func (s *Stage) Prototype(ctx context.Context, nodes int) error {
	s.say("kamino update takes %s as donor", s.Donor.Name)
	cmd := s.Command(ctx, s.UpdateArgs(nodes)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, s.Out
	runErr := cmd.Run()
	if err := json.Unmarshal(out.Bytes(), &s.Result); err != nil {
		return fmt.Errorf("run kamino update: %v; its output is no JSON: %w", runErr, err)
	}
	if runErr != nil {
		return fmt.Errorf("run kamino update: %w: %s\nthe end of the donor's console:\n%s", runErr, s.Result.Error, s.Console(s.Donor, 25))
	}
	away := fmt.Sprintf("the donor was away for %.0f s", s.Result.AwaySeconds)
	if s.Result.Adopted {
		away = "the donor went in the run that was taken over"
	}
	s.say("version %s is the pool's model; %s", s.Result.Version, away)
	return s.Clones(ctx)
}

// Clones waits for every instance that was made from an image version.
func (s *Stage) Clones(ctx context.Context) error {
	for _, i := range s.Cloud.Instances() {
		if i.ImageID == "" || slices.ContainsFunc(s.Clone, func(c emulator.Instance) bool { return c.ID == i.ID }) {
			continue
		}
		took, err := s.AwaitReady(ctx, i, patienceClone)
		if err != nil {
			return err
		}
		s.Clone, s.Cloned = append(s.Clone, i), append(s.Cloned, took)
		s.say("clone %s is Ready %s after power on", i.Name, took.Round(time.Second))
		if err := s.settle(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// ScaleOut adds nodes to the pool, as an autoscaler would: by ARM.
func (s *Stage) ScaleOut(ctx context.Context, capacity int) error {
	before := len(s.Cloud.Instances())
	err := s.arm(ctx, "PATCH", s.Scenario.PoolID(PoolName), fmt.Sprintf(`{"sku":{"capacity":%d}}`, capacity))
	if err != nil {
		return err
	}
	if err := s.await(ctx, "new instances", func() (bool, error) { return len(s.Cloud.Instances()) > before, nil }); err != nil {
		return err
	}
	return s.Clones(ctx)
}

// arm sends one request to Azure, as any client with rights would.
func (s *Stage) arm(ctx context.Context, method, id, body string) error {
	r := httptest.NewRequestWithContext(ctx, method, s.ARM+id+"?api-version=2024-07-01", strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+s.Cloud.Token())
	w := httptest.NewRecorder()
	s.Cloud.ServeHTTP(w, r)
	if w.Code >= 300 {
		return fmt.Errorf("%s %s: %d %s", method, id, w.Code, w.Body)
	}
	return nil
}

// SetUserData gives a living instance other user data, which is how its configuration is changed in
// place.
func (s *Stage) SetUserData(ctx context.Context, i emulator.Instance, userData string) error {
	return s.arm(ctx, "PATCH", i.ID, fmt.Sprintf(`{"properties":{"userData":%q}}`, userData))
}
