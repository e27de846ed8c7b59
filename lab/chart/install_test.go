package chart

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/strvals"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kamino.dev/kamino"
	awsemulator "kamino.dev/kamino/aws/emulator"
	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/lab"
	"kamino.dev/kamino/lab/labtest"
)

// role is what the page's ROLE stands for.
const role = "arn:aws:iam::123456789012:role/kamino"

// awsEndpoint leads a client to the lab's Region; credentials it must find itself.
var awsEndpoint = []string{"AWS_ENDPOINT_URL", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_EC2_METADATA_DISABLED", "AWS_CA_BUNDLE"}

// webIdentity is what the webhook of EKS puts into pods whose account names a role
// (https://docs.aws.amazon.com/eks/latest/userguide/pod-configuration.html).
func (k *keeper) webIdentity(account string) map[string]string {
	k.Helper()
	found, err := k.lab.Client.CoreV1().ServiceAccounts(namespace).Get(k.Context(), account, metav1.GetOptions{})
	if err != nil {
		k.Fatal(err)
	}
	named := found.Annotations["eks.amazonaws.com/role-arn"]
	if named == "" {
		return nil
	}
	file := filepath.Join(k.TempDir(), "token")
	if err := os.WriteFile(file, []byte(k.token(account)), 0o600); err != nil {
		k.Fatal(err)
	}
	return map[string]string{"AWS_ROLE_ARN": named, "AWS_WEB_IDENTITY_TOKEN_FILE": file,
		// The SDK makes the chain of credentials before it looks at AWS_ENDPOINT_URL.
		"AWS_ENDPOINT_URL_STS": k.lab.Endpoint}
}

// released are the values that charts of a release have of themselves (release/dist tests that),
// and one with which pods fit on no node: the test is their kubelet.
var released = map[string][]string{
	"kamino-base": {"sealImages={" + lab.SealImage + "}"},
	"vmss-prototype": {"kamino.container.imageRegistry=registry.invalid", "kamino.container.imageRepository=kamino",
		"kamino.container.imageHash=" + strings.Repeat("2b", 32), "kamino.container.sealImage=" + lab.SealImage, "kamino.nodeSelector.nowhere=x"},
}

// helmCommands are those of a section of docs/install.md, each a list of words.
func helmCommands(t *testing.T, section string) (commands [][]string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(page), "\n## "+section+"\n")
	if text, _, _ = strings.Cut(text, "\n## "); !ok {
		t.Fatalf("docs/install.md has no section %q", section)
	}
	text = strings.NewReplacer("\\\n", " ", "'", "", "arn:aws:iam::ACCOUNT:role/ROLE", role).Replace(text)
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, " # ") // a comment of the shell
		if words := strings.Fields(line); strings.HasPrefix(line, "    ") && words[0] == "helm" {
			commands = append(commands, words[1:])
		}
	}
	return commands
}

// install is "helm install" with the words of the page.
func (k *keeper) install(words []string) {
	k.Helper()
	values, install := map[string]any{}, action.NewInstall(k.helm())
	if len(words) < 3 || words[0] != "install" {
		k.Fatalf("helm %q is not an installation", words)
	}
	name, _, ok := strings.Cut(words[2], "-VERSION.tgz")
	if !ok {
		k.Fatalf("%s is no chart of a release", words[2])
	}
	install.ReleaseName = words[1]
	sets := slices.Clone(released[name])
	for rest := words[3:]; len(rest) > 0; {
		switch {
		case rest[0] == "--create-namespace":
			install.CreateNamespace, rest = true, rest[1:]
		case rest[0] == "-n" && len(rest) > 1:
			install.Namespace, rest = rest[1], rest[2:]
		case rest[0] == "--set" && len(rest) > 1:
			sets, rest = append(sets, rest[1]), rest[2:]
		default:
			k.Fatalf("the page has %q, which this test does not know", rest)
		}
	}
	for _, s := range sets {
		if err := strvals.ParseInto(s, values); err != nil {
			k.Fatal(err)
		}
	}
	chart, err := loader.Load(filepath.Join("../../charts", name))
	if err != nil {
		k.Fatal(err)
	}
	if install.Namespace != namespace {
		k.Fatalf("installed into %q", install.Namespace)
	}
	if _, err := install.RunWithContext(k.Context(), chart, values); err != nil {
		k.Fatalf("helm %s: %v", strings.Join(words, " "), err)
	}
}

// TestInstall types the Helm commands of docs/install.md, on clusters to which nothing was done,
// and then, for the night, lets the CronJob run once: it makes, proves and promotes the pool's
// image with the rights and the credentials that those commands gave it.
func TestInstall(t *testing.T) {
	for section, options := range map[string]lab.Options{
		"Azure, by Helm": {Scenario: emulator.Scenario{Pools: []emulator.Pool{{Name: "blue", Count: 2}}}},
		"AWS, by Helm": {On: lab.OnAWS, Groups: []awsemulator.Group{{Name: "blue", Count: 2, Min: 1, Tags: map[string]string{"kubernetes.io/cluster/lab": "owned"}}},
			ConfigureAWS: func(s *awsemulator.Server) {
				granted := lab.AWSRights()
				s.Identities = append(s.Identities, awsemulator.Identity{AccessKey: "ASIAROLE", Role: role,
					Policy: &granted})
			}},
	} {
		t.Run(section, func(t *testing.T) {
			t.Parallel()
			options.Dir, options.Binary, options.Speed, options.Unprepared = filepath.Join(t.TempDir(), "lab"), labProgram, speed, true
			l, err := lab.Start(mainContext, options)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(l.Stop)
			k := &keeper{T: t, lab: l, release: "nightly"}
			commands := helmCommands(t, section)
			if len(commands) != 3 || strings.Join(commands[2], " ") != "test nightly -n kamino --timeout 15m" {
				t.Fatalf("the page has %d commands of Helm, want those for the cluster, the nightly run and its test: %q", len(commands), commands)
			}
			k.install(commands[0])
			k.reinstall(commands[0])
			k.install(commands[1])
			k.patched()
			k.test()
			k.night()
			job := k.pods("run", 1)[0]
			run := k.start(job, "--minimum-ready-time", "0s", "--grace-period", "1s", "--prove-for", "0s")
			<-run.ended
			if said := run.says(); !run.ProcessState.Success() || !strings.Contains(said, "updated") || strings.Contains(said, "forbidden") {
				t.Errorf("the nightly run ended with %s:\n%s", run.ProcessState, tail(said))
			}
		})
	}
}

// reinstall removes the release of the chart kamino-base and installs it again. In between nothing
// is admitted to its namespace; afterwards what the page installs is, as the nightly run shows.
func (k *keeper) reinstall(words []string) {
	k.Helper()
	refused := func(why string) {
		k.Helper()
		labtest.Await(k, time.Minute, "a pod is refused: "+why, func() string {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "probe", Image: "probe"}}}}
			_, err := k.lab.Client.CoreV1().Pods(kamino.SystemNamespace).Create(k.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err != nil && strings.Contains(err.Error(), why) {
				return ""
			}
			return fmt.Sprint(err)
		})
	}
	refused("image probe may not seal disks")
	if _, err := action.NewUninstall(k.helm()).Run(words[1]); err != nil {
		k.Fatal(err)
	}
	refused("no params found")
	k.install(words)
}

// patched says of all nodes that they were patched just now.
func (k *keeper) patched() {
	k.Helper()
	nodes, err := k.lab.Client.CoreV1().Nodes().List(k.Context(), metav1.ListOptions{})
	if err != nil {
		k.Fatal(err)
	}
	for _, n := range nodes.Items {
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, kamino.KuredLastPatch.Annotation, time.Now().UTC().Format(time.RFC3339))
		if _, err := k.lab.Client.CoreV1().Nodes().Patch(k.Context(), n.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			k.Fatal(err)
		}
	}
}

// night is "kubectl create job --from" of the release's CronJob.
func (k *keeper) night() {
	k.Helper()
	var found batchv1.CronJob
	labtest.Await(k, time.Minute, "there is one CronJob", func() string {
		list, err := k.lab.Client.BatchV1().CronJobs(namespace).List(k.Context(), metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		if len(list.Items) != 1 {
			return fmt.Sprintf("%d", len(list.Items))
		}
		found = list.Items[0]
		return ""
	})
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: found.Name + "-now", Labels: found.Spec.JobTemplate.Labels}, Spec: found.Spec.JobTemplate.Spec}
	if _, err := k.lab.Client.BatchV1().Jobs(namespace).Create(k.Context(), job, metav1.CreateOptions{}); err != nil {
		k.Fatal(err)
	}
}
