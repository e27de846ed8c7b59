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

// seal does to the simulated disk what the agent does to a real one: identity
// and secrets removed, receipt written, receipt reported with kubelet's own
// credentials, power off.
func (k *kubelet) seal(ctx context.Context, pod *corev1.Pod) error {
	run, donor, powerOff, err := sealArguments(pod)
	if err != nil {
		return err
	}
	if donor != k.node {
		return fmt.Errorf("seal: this is node %s, not the donor %s", k.node, donor)
	}
	if err := k.fleet.wait(ctx, k.fleet.latencies.Seal); err != nil {
		return err
	}
	doc := receipt{
		APIVersion: "kamino.dev/v1alpha1", Kind: "Receipt", Run: run, Donor: donor, VMID: strings.ToLower(k.instance.VMID),
		SealedAt: k.fleet.clock.Now().UTC().Format(time.RFC3339), Agent: "simulated", Nonce: sealNonce(pod), Policy: sealPolicy(pod),
	}
	var sealErr error
	var packages string
	if err := k.fleet.cloud.WriteDisk(k.instance.ID, func(files map[string]string) {
		packages = files[packagesFile]
		doc.PackageDigest, doc.PackageCount = packageDigest(packages), strings.Count(packages, "\n")
		doc.SSHKeys = strings.Fields(files[sshKeyFile])
		sealErr = sealDisk(files, &doc, k.hostname)
	}); err != nil {
		return err
	}
	if sealErr != nil {
		return sealErr
	}
	doc.RuleCount, doc.Rules = len(doc.Rules), nil
	annotation, err := json.Marshal(doc)
	if err != nil {
		return fmt.Errorf("encode receipt: %w", err)
	}
	reporting, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	notes := map[string]string{receiptAnnotation: string(annotation)}
	if nonce := sealNonce(pod); nonce != "" { // else a former version asks, whose agent knows of no list
		if notes[packagesAnnotation], err = packageList(run, nonce, packages); err != nil {
			return err
		}
	}
	reportErr := k.retry(reporting, func(ctx context.Context) error {
		return k.patchNode(ctx, map[string]any{"metadata": map[string]any{"annotations": notes}})
	})
	if powerOff {
		// Also without a report: a sealed machine has no identity left to run under.
		k.fleet.cloud.PowerOffFromGuest(k.instance.ID)
	}
	return reportErr
}

// packageDigest is that of a list as the agent makes it.
func packageDigest(list string) string {
	sum := sha256.Sum256([]byte(list))
	return hex.EncodeToString(sum[:])
}

// isList: the pod of which the agent writes the packages of the disk on the node.
func isList(pod *corev1.Pod) bool { return pod.Labels["app.kubernetes.io/name"] == "kamino-packages" }

// list does what the agent's verb packages does.
func (k *kubelet) list(ctx context.Context, pod *corev1.Pod) error {
	var packages string
	if err := k.fleet.cloud.WriteDisk(k.instance.ID, func(files map[string]string) { packages = files[packagesFile] }); err != nil {
		return err
	}
	list, err := packageList(pod.Labels["kamino.dev/run"], sealNonce(pod), packages)
	if err != nil {
		return err
	}
	return k.retry(ctx, func(ctx context.Context) error {
		return k.patchNode(ctx, map[string]any{"metadata": map[string]any{"annotations": map[string]string{packagesAnnotation: list}}})
	})
}

// packageList is the annotation as agent/verb_packages.go writes it.
func packageList(run, nonce, packages string) (string, error) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := io.WriteString(z, packages); err != nil {
		return "", err
	}
	if err := z.Close(); err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]any{"run": run, "nonce": nonce, "list": packed.Bytes()})
	return string(text), err
}

// sealDisk removes identity and writes receipt and ancestry, unless this run sealed the disk
// before.
func sealDisk(files map[string]string, doc *receipt, hostname string) error {
	if strings.Contains(files[lineageFile], fmt.Sprintf("%q:%q", "run", doc.Run)) {
		return fmt.Errorf("seal: run %s has sealed this disk before", doc.Run)
	}
	for _, r := range []struct{ id, path string }{
		{"machine-id", machineIDFile}, {"hostname", hostnameFile}, {"ssh-host-keys", sshKeyFile}, {"kubelet-pki", kubeletPKI},
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
	files[receiptFile] = string(content) + "\n"
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

// sealNonce is what the order in the pod asks the receipt to repeat.
func sealNonce(pod *corev1.Pod) string { return sealEnv(pod, "KAMINO_SEAL_NONCE") }

// sealPolicy is the digest of the policy that the order in the pod brings, empty without one.
func sealPolicy(pod *corev1.Pod) string {
	text := sealEnv(pod, "KAMINO_SEAL_POLICY")
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

func sealEnv(pod *corev1.Pod, name string) string {
	for _, e := range pod.Spec.Containers[0].Env {
		if e.Name == name {
			return e.Value
		}
	}
	return ""
}

// sealArguments reads the command line of the agent, as the engine wrote it into the pod.
func sealArguments(pod *corev1.Pod) (run, donor string, powerOff bool, err error) {
	if len(pod.Spec.Containers) == 0 {
		return "", "", false, errors.New("seal: pod has no container")
	}
	line := slices.Concat(pod.Spec.Containers[0].Command, pod.Spec.Containers[0].Args)
	for i, word := range line {
		name, value, inline := strings.Cut(word, "=")
		if !inline && i+1 < len(line) {
			value = line[i+1]
		}
		switch name {
		case "--run":
			run = value
		case "--donor":
			donor = value
		case "--poweroff":
			powerOff = !inline || value == "true"
		}
	}
	if run == "" || donor == "" || !slices.Contains(line, "seal") {
		return "", "", false, fmt.Errorf("seal: command %q must be `seal --run RUN --donor NODE`", line)
	}
	return run, donor, powerOff, nil
}
