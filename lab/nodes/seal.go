package nodes

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kamino.dev/kamino"
	"kamino.dev/kamino/internal/worlds"
)

// sealName is the label value of seal pods, receiptAnnotation where the receipt goes.
const (
	sealName           = "kamino-seal"
	receiptAnnotation  = "kamino.dev/receipt"
	packagesAnnotation = "kamino.dev/packages"
	reportTimeout      = 30 * time.Second
)

// receipt says what a seal removed. On the node's annotation the rules are only counted.
type receipt struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Run        string `json:"run"`
	Donor      string `json:"donor"`
	SealedAt   string `json:"sealedAt"`
	VMID       string `json:"vmId"`
	Rules      []rule `json:"rules,omitempty"`
	RuleCount  int    `json:"ruleCount,omitempty"`
	Hash       string `json:"hash"`
	Agent      string `json:"agent"`
	Nonce      string `json:"nonce,omitempty"`
	Policy     string `json:"policy,omitempty"`

	PackageDigest string `json:"packageDigest,omitempty"`
	PackageCount  int    `json:"packageCount,omitempty"`

	SSHKeys []string `json:"sshKeys,omitempty"`
}

type rule struct {
	ID      string `json:"id"`
	Matched int    `json:"matched"`
	Bytes   int    `json:"bytes"`
}

func isSeal(pod *corev1.Pod) bool { return pod.Labels["app.kubernetes.io/name"] == sealName }

// isSurvey: it looks at a real disk beside the node's pods; a simulated one has nothing to be
// looked at.
func isSurvey(pod *corev1.Pod) bool {
	return pod.Labels["app.kubernetes.io/name"] == "kamino-inventory"
}

// seal is the life of a seal pod, which ends with the machine's power.
func (k *player) seal(ctx context.Context, pod *corev1.Pod) error {
	order, err := sealOrderOf(pod)
	if err != nil {
		return err
	}
	if order.donor != k.node {
		return fmt.Errorf("seal: this is node %s, not the donor %s", k.node, order.donor)
	}
	if err := k.meant(pod); err != nil {
		return err
	}
	if err := k.fleet.wait(ctx, k.fleet.latencies.Seal); err != nil {
		return err
	}
	notes, err := k.SealFor(pod)
	if err != nil {
		return err
	}
	reporting, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	reportErr := k.retry(reporting, func(ctx context.Context) error { return k.Annotate(ctx, notes) })
	if order.powerOff {
		// Also without a report: a sealed machine has no identity left to run under.
		k.fleet.cloud.PowerOffFromGuest(k.Instance.ID)
	}
	return reportErr
}

// SealFor does to the simulated disk what the agent in a seal pod does to a real one: identity and
// secrets removed, receipt written. What it returns is for the node's annotations.
func (k *Kubelet) SealFor(pod *corev1.Pod) (notes map[string]string, err error) {
	order, err := sealOrderOf(pod)
	if err != nil {
		return nil, err
	}
	return k.Seal(order.run, Nonce(pod), SealPolicy(pod))
}

// Seal is SealFor without a pod.
func (k *Kubelet) Seal(run, nonce, policy string) (notes map[string]string, err error) {
	doc := receipt{
		APIVersion: "kamino.dev/v1alpha1", Kind: "Receipt", Run: run, Donor: k.node, VMID: strings.ToLower(k.Instance.VMID),
		SealedAt: k.Now().UTC().Format(time.RFC3339), Agent: "simulated", Nonce: nonce, Policy: policy,
	}
	var sealErr error
	var packages string
	if err := k.Cloud.WriteDisk(k.Instance.ID, func(files map[string]string) {
		if packages = files[packagesFile]; packages != "" {
			doc.PackageDigest, doc.PackageCount = packageDigest(packages), strings.Count(packages, "\n")
		}
		doc.SSHKeys = strings.Fields(files[sshKeyFile])
		sealErr = sealDisk(files, &doc, k.hostname)
	}); err != nil {
		return nil, err
	}
	if sealErr != nil {
		return nil, sealErr
	}
	doc.RuleCount, doc.Rules = len(doc.Rules), nil
	annotation, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("encode receipt: %w", err)
	}
	notes = map[string]string{receiptAnnotation: string(annotation)}
	if packages != "" {
		notes[packagesAnnotation] = worlds.Pack(run, nonce, "list", []byte(packages))
	}
	return notes, nil
}

// packageDigest is that of a list as the agent makes it.
func packageDigest(list string) string {
	sum := sha256.Sum256([]byte(list))
	return hex.EncodeToString(sum[:])
}

// isList: the pod of which the agent writes the packages of the disk on the node.
func isList(pod *corev1.Pod) bool { return pod.Labels["app.kubernetes.io/name"] == "kamino-packages" }

// list does what the agent's verb packages does.
func (k *player) list(ctx context.Context, pod *corev1.Pod) error {
	var packages string
	if err := k.fleet.cloud.WriteDisk(k.Instance.ID, func(files map[string]string) { packages = files[packagesFile] }); err != nil {
		return err
	}
	list := worlds.Pack(pod.Labels["kamino.dev/run"], Nonce(pod), "list", []byte(packages))
	return k.retry(ctx, func(ctx context.Context) error {
		return k.Annotate(ctx, map[string]string{packagesAnnotation: list})
	})
}

// sealDisk removes identity and writes receipt and ancestry.
func sealDisk(files map[string]string, doc *receipt, hostname string) error {
	for _, r := range []struct{ id, path string }{
		{"machine-id", MachineIDFile}, {"hostname", hostnameFile}, {"ssh-host-keys", sshKeyFile}, {"kubelet-pki", kubeletPKI},
	} {
		done := rule{ID: r.id}
		for path, content := range files {
			if path == r.path || strings.HasSuffix(r.path, "/") && strings.HasPrefix(path, r.path) {
				done.Matched++
				done.Bytes += len(content)
				delete(files, path)
			}
		}
		doc.Rules = append(doc.Rules, done)
	}
	files[ancestryFile] += doc.SealedAt[:len(time.DateOnly)] + " " + hostname + "\n"
	doc.Hash = hashDisk(files)
	content, err := json.Marshal(doc)
	if err != nil {
		return fmt.Errorf("encode receipt: %w", err)
	}
	files[ReceiptFile] = string(content) + "\n"
	return nil
}

// hashDisk covers every path and content that the clone will find, but the receipt itself.
func hashDisk(files map[string]string) string {
	paths := make([]string, 0, len(files))
	for path := range files {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	sum := sha256.New()
	for _, path := range paths {
		fmt.Fprintf(sum, "%s\x00%d\x00", path, len(files[path]))
		_, _ = io.WriteString(sum, files[path]) // a hash never fails
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil))
}

// MeantVM is the UUID of the machine that a pod of the agent is for; "" any.
func MeantVM(pod *corev1.Pod) string { return PodEnv(pod, "KAMINO_MACHINE") }

// MeantBoot is the boot that it is for; "" any.
func MeantBoot(pod *corev1.Pod) string { return PodEnv(pod, "KAMINO_BOOT") }

// meant refuses a pod that is for another machine, whose node had this node's name.
func (k *player) meant(pod *corev1.Pod) error {
	if vm := MeantVM(pod); vm != "" && !kamino.SameVM(vm, k.Instance.VMID) {
		return fmt.Errorf("this pod is for machine %s, but runs on machine %s", vm, k.Instance.VMID)
	}
	if boot := MeantBoot(pod); boot != "" && boot != k.bootID {
		return fmt.Errorf("this pod is for boot %s of the machine, which is in boot %s now", boot, k.bootID)
	}
	return nil
}

// Nonce is what the order in a pod of the agent asks it to repeat.
func Nonce(pod *corev1.Pod) string { return PodEnv(pod, "KAMINO_SEAL_NONCE") }

// SealPolicy is the digest of the policy that the order in the pod brings, empty without one.
func SealPolicy(pod *corev1.Pod) string {
	text := PodEnv(pod, "KAMINO_SEAL_POLICY")
	if text == "" {
		return ""
	}
	packed, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return "no base64"
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return "no gzip"
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, z); err != nil {
		return "no gzip"
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// PodEnv is a variable of a pod's container.
func PodEnv(pod *corev1.Pod, name string) string {
	for _, e := range pod.Spec.Containers[0].Env {
		if e.Name == name {
			return e.Value
		}
	}
	return ""
}

// sealOrder is the command line of the agent.
type sealOrder struct {
	run, donor string
	powerOff   bool
}

// sealOrderOf reads it as the engine wrote it into the pod.
func sealOrderOf(pod *corev1.Pod) (o sealOrder, err error) {
	if len(pod.Spec.Containers) == 0 {
		return o, errors.New("seal: pod has no container")
	}
	line := slices.Concat(pod.Spec.Containers[0].Command, pod.Spec.Containers[0].Args)
	for i, word := range line {
		name, value, inline := strings.Cut(word, "=")
		if !inline && i+1 < len(line) {
			value = line[i+1]
		}
		switch name {
		case "--run":
			o.run = value
		case "--donor":
			o.donor = value
		case "--poweroff":
			o.powerOff = !inline || value == "true"
		}
	}
	if o.run == "" || o.donor == "" || !slices.Contains(line, "seal") {
		return o, fmt.Errorf("seal: command %q must be `seal --run RUN --donor NODE`", line)
	}
	return o, nil
}
