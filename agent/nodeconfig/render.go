// Package nodeconfig finds the NodeConfig of this machine, and makes of it the files that configure kubelet
// and containerd.
package nodeconfig

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/host"
	"kamino.dev/kamino/agent/userdata"
)

// Files that the document becomes.
const (
	CAPath            = "etc/kamino/ca.crt"
	KubeletConfigPath = "var/lib/kubelet/config.yaml"
	KubeconfigPath    = "var/lib/kubelet/kubeconfig"
	BootstrapPath     = "var/lib/kubelet/bootstrap-kubeconfig"
	DropInPath        = "etc/systemd/system/kubelet.service.d/90-kamino.conf"
	RuntimePath       = "etc/containerd/conf.d/90-kamino.toml"
	runtimeMain       = "etc/containerd/config.toml"
	// basePath keeps kubelet's configuration as the image brought it, so that every generation
	// starts from the same.
	basePath = "var/lib/kamino/base/kubelet-config.yaml"
)

// commandMost bounds join.command: one that hangs fails, and the first boot tries again.
const commandMost = 2 * time.Minute

// File is one file to write; nil Data removes it.
type File struct {
	Path string
	Data []byte
	Mode fs.FileMode
	// Unit reads the file when it starts, and must be restarted when it changed.
	Unit string
}

// Render turns the document into files for this machine. Whatever is wrong with it is
// found before the first file is written. first asks for the join credential as well; a running
// node has its own. With host.Idle nothing is executed: a kubelet is taken for the wanted version,
// and join.command is an error (host.ErrIdle).
func Render(ctx context.Context, d *disk.Disk, h host.Host, c *userdata.NodeConfig, first bool) ([]File, error) {
	if by := Configurer(d); by != "" {
		return nil, fmt.Errorf("%s of EKS configures kubelet and containerd of this image's nodes, and two programs would undo each other's work: write what this NodeConfig says into %s, and remove it from userData",
			by, map[string]string{Nodeadm: "that of nodeadm (a part of type application/node.eks.aws)",
				Bootstrap: "that script's arguments"}[by])
	}
	var files []File
	if c.Cluster.CA != "" {
		ca, err := c.Cluster.Certificates()
		if err != nil {
			return nil, err
		}
		files = append(files, File{CAPath, ca, 0o644, "kubelet.service"})
	}
	kubelet, err := kubeletConfig(d, c)
	if err != nil {
		return nil, err
	}
	files = append(files, kubelet...)
	if c.Join.Method != userdata.JoinKeep && first {
		kubeconfig, err := bootstrap(ctx, d, h, c)
		if err != nil {
			return nil, err
		}
		files = append(files, File{BootstrapPath, kubeconfig, 0o600, "kubelet.service"})
	}
	command, err := dropIn(ctx, d, h, c)
	if err != nil {
		return nil, err
	}
	files = append(files, command)
	containerd, err := runtime(d, c)
	return append(files, containerd...), err
}

func kubeletConfig(d *disk.Disk, c *userdata.NodeConfig) ([]File, error) {
	base, err := d.ReadFile(basePath, disk.Small)
	keepBase := false
	if errors.Is(err, fs.ErrNotExist) {
		base, err = d.ReadFile(KubeletConfigPath, disk.Small)
		keepBase = err == nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	have := len(base) > 0
	if have && c.Join.Method == userdata.JoinKeep && len(c.Kubelet.Config) == 0 && len(c.Cluster.DNS) == 0 && len(c.Kubelet.Taints) == 0 &&
		c.Cluster.CA == "" && keepBase {
		return nil, nil
	}
	merged := map[string]any{}
	if err := yaml.Unmarshal(base, &merged); err != nil {
		return nil, fmt.Errorf("decode kubelet's configuration of the image: %w", err)
	}
	if !have {
		if c.Join.Method == userdata.JoinKeep && len(c.Kubelet.Config) == 0 {
			return nil, nil // kubelet is configured by its flags only
		}
		merged = map[string]any{"rotateCertificates": true, "cgroupDriver": "systemd",
			"authentication": map[string]any{"anonymous": map[string]any{"enabled": false}, "webhook": map[string]any{"enabled": true}},
			"authorization":  map[string]any{"mode": "Webhook"}}
	}
	merged["apiVersion"], merged["kind"] = "kubelet.config.k8s.io/v1beta1", "KubeletConfiguration"
	delete(merged, "providerID")
	if c.Cluster.CA != "" {
		merge(merged, map[string]any{"authentication": map[string]any{"x509": map[string]any{"clientCAFile": "/" + CAPath}}})
	}
	if len(c.Cluster.DNS) > 0 {
		merged["clusterDNS"] = c.Cluster.DNS
		merged["clusterDomain"] = "cluster.local"
	}
	if c.Cluster.Domain != "" {
		merged["clusterDomain"] = c.Cluster.Domain
	}
	if len(c.Kubelet.Taints) > 0 {
		merged["registerWithTaints"] = c.Kubelet.Taints
	}
	merge(merged, c.Kubelet.Config)
	data, err := yaml.Marshal(merged)
	if err != nil {
		return nil, fmt.Errorf("encode kubelet's configuration: %w", err)
	}
	files := []File{{KubeletConfigPath, data, 0o644, "kubelet.service"}}
	if keepBase {
		files = append([]File{{basePath, base, 0o644, ""}}, files...)
	}
	return files, nil
}

// merge puts fragment over base: objects are merged, everything else is replaced, null removes.
func merge(base, fragment map[string]any) {
	for key, value := range fragment {
		inner, ok := value.(map[string]any)
		former, was := base[key].(map[string]any)
		switch {
		case value == nil:
			delete(base, key)
		case ok && was:
			merge(former, inner)
		default:
			base[key] = value
		}
	}
}

// bootstrap is the kubeconfig with which kubelet asks for its own certificate
// (https://kubernetes.io/docs/reference/access-authn-authz/kubelet-tls-bootstrapping/).
func bootstrap(ctx context.Context, d *disk.Disk, h host.Host, c *userdata.NodeConfig) ([]byte, error) {
	var credential string
	switch c.Join.Method {
	case userdata.JoinToken:
		credential = c.Join.Token
	case userdata.JoinFile:
		data, err := d.ReadFile(c.Join.File, disk.Small)
		if err != nil {
			return nil, fmt.Errorf("read join.file: %w", err)
		}
		credential = string(data)
	case userdata.JoinCommand:
		ctx, cancel := context.WithTimeout(ctx, commandMost)
		defer cancel()
		out, err := h.Run(ctx, c.Join.Command[0], c.Join.Command[1:]...)
		if err != nil {
			return nil, fmt.Errorf("run join.command: %w", err)
		}
		credential = out
	}
	credential = strings.TrimSpace(credential)
	if credential == "" {
		return nil, fmt.Errorf("join method %s gave an empty credential", c.Join.Method)
	}
	var config struct{ Kind string }
	if yaml.Unmarshal([]byte(credential), &config) == nil && config.Kind == "Config" {
		return []byte(credential + "\n"), nil
	}
	if strings.ContainsAny(credential, " \t\r\n\"") {
		return nil, fmt.Errorf("join method %s gave neither a token nor a kubeconfig", c.Join.Method)
	}
	ca, err := c.Cluster.Certificates()
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters:
- name: cluster
  cluster:
    server: %s
    certificate-authority-data: %s
users:
- name: bootstrap
  user:
    token: %s
contexts:
- name: bootstrap
  context:
    cluster: cluster
    user: bootstrap
current-context: bootstrap
`, strings.TrimSuffix(c.Cluster.Endpoint, "/"), base64.StdEncoding.EncodeToString(ca), credential), nil
}

// dropIn starts the right kubelet with the image's own arguments and ours after them: of an
// argument that is given twice, kubelet takes the last, and labels add up.
func dropIn(ctx context.Context, d *disk.Disk, h host.Host, c *userdata.NodeConfig) (File, error) {
	f := File{Path: DropInPath, Mode: 0o644, Unit: "kubelet.service"}
	if c.Join.Method == userdata.JoinKeep && c.Kubelet.Version == "" && len(c.Kubelet.Labels) == 0 && len(c.Kubelet.Args) == 0 &&
		len(c.Kubelet.Config) == 0 {
		return f, nil
	}
	image := execStart(d)
	command := image
	if c.Kubelet.Version != "" || len(command) == 0 {
		binary, err := findKubelet(ctx, d, h, c.Kubelet.Version, command)
		if err != nil {
			return f, err
		}
		command = append([]string{binary}, command[min(len(command), 1):]...)
	}
	var args []string
	if c.Join.Method != userdata.JoinKeep || len(c.Kubelet.Config) > 0 {
		args = append(args, "--config=/"+KubeletConfigPath)
	}
	if c.Join.Method != userdata.JoinKeep {
		args = append(args, "--kubeconfig=/"+KubeconfigPath, "--bootstrap-kubeconfig=/"+BootstrapPath, "--cert-dir=/var/lib/kubelet/pki")
	}
	if len(c.Kubelet.Labels) > 0 {
		var labels []string
		for _, key := range slices.Sorted(maps.Keys(c.Kubelet.Labels)) {
			labels = append(labels, key+"="+c.Kubelet.Labels[key])
		}
		args = append(args, "--node-labels="+strings.Join(labels, ","))
	}
	for _, arg := range append(args, c.Kubelet.Args...) {
		if !given(command, arg) {
			command = append(slices.Clip(command), arg)
		}
	}
	if slices.Equal(command, image) {
		return f, nil // the image's own unit does, and systemd need not read its units again
	}
	f.Data = fmt.Appendf(nil, "# Written by kamino-agent from its NodeConfig.\n[Service]\nExecStart=\nExecStart=%s\n",
		strings.Join(command, " "))
	return f, nil
}

// given says whether a command line has the argument already, with none after it that could say
// otherwise. Nobody knows what is in variables.
func given(command []string, arg string) bool {
	name, _, hasValue := strings.Cut(arg, "=")
	for i := len(command) - 1; i > 0; i-- {
		word, _, _ := strings.Cut(command[i], "=")
		if command[i] == arg {
			return hasValue
		}
		if word == name || strings.Contains(command[i], "$") {
			return false
		}
	}
	return false
}

// Command is kubelet's command line with that drop-in of ours; without one, the image's.
func Command(d *disk.Disk, dropIn []byte) []string {
	if last := lastExecStart(string(dropIn)); last != nil {
		return last
	}
	return execStart(d)
}

// lastExecStart is the last command line of a unit or drop-in; nil when there is none.
func lastExecStart(unit string) []string {
	var last []string
	for line := range strings.Lines(strings.ReplaceAll(unit, "\\\n", " ")) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "ExecStart="); ok {
			last = strings.Fields(value)
		}
	}
	return last
}

// unitDirs are where systemd finds units, the strongest last (systemd.unit(5)).
var unitDirs = []string{"usr/lib/systemd/system", "lib/systemd/system", "usr/local/lib/systemd/system",
	"run/systemd/system", "etc/systemd/system"}

// kubeletUnits are kubelet's unit and drop-ins, the strongest last, without the agent's own.
func kubeletUnits(d *disk.Disk) (units []string) {
	for _, dir := range unitDirs {
		if d.Exists(dir + "/kubelet.service") {
			units = []string{dir + "/kubelet.service"}
		}
	}
	byName := map[string]string{} // a drop-in in /etc replaces one of the same name in /usr/lib
	for _, dir := range unitDirs {
		found, _ := d.Glob(dir + "/kubelet.service.d/*.conf")
		for _, f := range found {
			byName[path.Base(f)] = f
		}
	}
	delete(byName, path.Base(DropInPath))
	delete(byName, path.Base(CanaryPath))
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		units = append(units, byName[name])
	}
	return units
}

// execStart is kubelet's command line as the image's unit and drop-ins define it.
func execStart(d *disk.Disk) []string {
	var last []string
	for _, u := range kubeletUnits(d) {
		if command := lastExecStart(d.Text(u)); command != nil {
			last = command
		}
	}
	return last
}

// findKubelet is the path of a kubelet of the wanted version (any, when it is empty) on the image.
func findKubelet(ctx context.Context, d *disk.Disk, h host.Host, version string, command []string) (string, error) {
	bare := strings.TrimPrefix(version, "v")
	var asked, seen []string
	if version != "" {
		for _, p := range []string{"opt/kamino/kubelet/" + version + "/kubelet", "opt/kamino/kubelet/" + bare + "/kubelet",
			"usr/local/bin/kubelet-" + version,
			"usr/local/bin/kubelet-" + bare, "opt/bin/kubelet-" + version, "usr/bin/kubelet-" + version} {
			if d.Exists(p) {
				return "/" + p, nil
			}
		}
	}
	plain := []string{"/usr/local/bin/kubelet", "/usr/bin/kubelet", "/opt/bin/kubelet"}
	if len(command) > 0 {
		plain = append([]string{strings.TrimLeft(command[0], "-@:+!")}, plain...)
	}
	for _, p := range plain {
		if !d.Exists(p) || slices.Contains(asked, p) {
			continue
		}
		if version == "" {
			return p, nil
		}
		out, err := h.Run(ctx, p, "--version")
		if errors.Is(err, host.ErrIdle) {
			return p, nil // it may be that version
		}
		if err != nil {
			return "", fmt.Errorf("ask kubelet for its version: %w", err)
		}
		has := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(out), "Kubernetes "))
		if has == version {
			return p, nil
		}
		asked = append(asked, p)
		seen = append(seen, fmt.Sprintf("%s (%s)", p, cmp.Or(has, "which prints no version")))
	}
	if version == "" {
		return "", errors.New("find kubelet: none at /usr/bin, /usr/local/bin or /opt/bin")
	}
	for _, pattern := range []string{"opt/kamino/kubelet/*/kubelet", "usr/local/bin/kubelet-*", "opt/bin/kubelet-*", "usr/bin/kubelet-*"} {
		others, _ := d.Glob(pattern) // a pattern of ours is never malformed
		for _, o := range others {
			seen = append(seen, "/"+o)
		}
	}
	return "", fmt.Errorf("kubelet.version: %s is not on this image; it has %s. Put it at /opt/kamino/kubelet/%s/kubelet of the next donor, or ask for another",
		version, cmp.Or(strings.Join(seen, ", "), "none"), version)
}

// runtime writes containerd's fragment and makes its configuration import it.
func runtime(d *disk.Disk, c *userdata.NodeConfig) ([]File, error) {
	f := File{Path: RuntimePath, Mode: 0o644, Unit: "containerd.service"}
	if strings.TrimSpace(c.Containerd.Config) == "" {
		return []File{f}, nil
	}
	f.Data = []byte(c.Containerd.Config)
	main, err := d.ReadFile(runtimeMain, disk.Small)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	text, err := importing(string(main))
	if err != nil {
		return nil, fmt.Errorf("containerd.config: read imports of /%s: %w; add %q there on the donor", runtimeMain, err,
			"/etc/containerd/conf.d/*.toml")
	}
	if text == string(main) {
		return []File{f}, nil
	}
	return []File{{runtimeMain, []byte(text), 0o644, "containerd.service"}, f}, nil
}
