package nodeconfig

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/userdata"
)

// CanaryPath is a drop-in behind the agent's own, on machines only whose nodes must stand apart
// from their first second.
const CanaryPath = "etc/systemd/system/kubelet.service.d/91-kamino-canary.conf"

var (
	taintsFlag = regexp.MustCompile(`--register-with-taints[= ]+["']?([^\s"']+)`)
	configFlag = regexp.MustCompile(`--config[= ]+["']?([^\s"']+)`)

	endpointFlag = regexp.MustCompile(`--container-runtime-endpoint[= ]+["']?([^\s"']+)`)
)

// Registering is the drop-in with which kubelet registers its node with one taint and one label
// more, whatever else makes its command line. Of the flag --register-with-taints kubelet takes the
// last, and it wins over the configuration's registerWithTaints
// (https://kubernetes.io/docs/reference/command-line-tools-reference/kubelet/), so the taints that
// stood there are repeated. Those of a directory given with --config-dir are not read. Labels of
// several --node-labels add up (k8s.io/component-base v0.36.3, cli/flag/configuration_map.go).
// Where kubelet has that taint of its own, there is none: a File without Data.
func Registering(d *disk.Disk, more userdata.Taint, label string) (File, error) {
	dropIn, err := d.ReadFile(DropInPath, disk.Small)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return File{}, err
	}
	command := Command(d, dropIn)
	if len(command) == 0 {
		return File{}, errors.New("find kubelet's command line: its unit has no ExecStart")
	}
	taints, err := registered(d, strings.Join(command, " ")+"\n"+environment(d))
	if err != nil {
		return File{}, err
	}
	// Asked for already, as EKS's nodeadm is by a canary's user data: kubelet refuses a key twice.
	if slices.ContainsFunc(strings.Split(strings.Join(taints, ","), ","), func(t string) bool {
		return strings.HasPrefix(t, more.Key+":") || strings.HasPrefix(t, more.Key+"=")
	}) {
		return File{Path: CanaryPath, Unit: "kubelet.service"}, nil
	}
	return File{CanaryPath, fmt.Appendf(nil, "# Written by kamino-agent: this machine is a canary.\n[Service]\nExecStart=\nExecStart=%s --register-with-taints=%s --node-labels=%s\n",
		strings.Join(command, " "), strings.Join(append(taints, flagged(more)), ","), label), 0o644, "kubelet.service"}, nil
}

// flagged is a taint as the flag has it.
func flagged(t userdata.Taint) string {
	if t.Value == "" {
		return t.Key + ":" + t.Effect
	}
	return t.Key + "=" + t.Value + ":" + t.Effect
}

// registered are the taints with which kubelet registers its node so far: of the flag, else of the
// configuration that its arguments name.
func registered(d *disk.Disk, arguments string) (taints []string, err error) {
	if found := taintsFlag.FindAllStringSubmatch(arguments, -1); found != nil {
		return []string{found[len(found)-1][1]}, nil
	}
	config, err := configured(d, arguments)
	if err != nil {
		return nil, err
	}
	for _, t := range config.Taints {
		taints = append(taints, flagged(t))
	}
	return taints, nil
}

// kubeletConfiguration is as much of a KubeletConfiguration as is read
// (https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/).
type kubeletConfiguration struct {
	Taints   []userdata.Taint `yaml:"registerWithTaints"`
	Endpoint string           `yaml:"containerRuntimeEndpoint"`
}

// configured is the configuration that kubelet's arguments name; empty where there is none.
func configured(d *disk.Disk, arguments string) (config kubeletConfiguration, err error) {
	name := KubeletConfigPath
	if found := configFlag.FindAllStringSubmatch(arguments, -1); found != nil {
		name = strings.TrimPrefix(found[len(found)-1][1], "/")
	}
	data, err := d.ReadFile(name, disk.Small)
	if errors.Is(err, fs.ErrNotExist) {
		return config, nil
	} else if err != nil {
		return config, err
	}
	if err := yaml.Unmarshal(data, &config); err != nil {
		return config, fmt.Errorf("decode kubelet's configuration /%s: %w", name, err)
	}
	return config, nil
}

// RuntimeSocket is the socket over which kubelet talks to the container runtime, relative to the
// root: of its flag, else of its configuration, else containerd's, which is kubelet's default; empty
// where that is not a unix socket.
func RuntimeSocket(d *disk.Disk) string {
	dropIn, _ := d.ReadFile(DropInPath, disk.Small) // none: the unit's own arguments
	arguments := strings.Join(Command(d, dropIn), " ") + "\n" + environment(d)
	endpoint := "unix:///run/containerd/containerd.sock"
	if found := endpointFlag.FindAllStringSubmatch(arguments, -1); found != nil {
		endpoint = found[len(found)-1][1]
	} else if config, err := configured(d, arguments); err == nil && config.Endpoint != "" {
		endpoint = config.Endpoint
	}
	name := strings.TrimPrefix(endpoint, "unix://")
	if !strings.HasPrefix(name, "/") {
		return ""
	}
	return strings.TrimLeft(name, "/")
}

// environment is what kubelet's units put into variables, as text: kubeadm and AKS keep arguments
// in files that the unit names.
func environment(d *disk.Disk) string {
	var text strings.Builder
	for _, u := range kubeletUnits(d) {
		for line := range strings.Lines(d.Text(u)) {
			line = strings.TrimSpace(line)
			if value, ok := strings.CutPrefix(line, "Environment="); ok {
				text.WriteString(value + "\n")
			} else if file, ok := strings.CutPrefix(line, "EnvironmentFile="); ok {
				text.WriteString(d.Text(strings.TrimLeft(file, "-/")) + "\n")
			}
		}
	}
	return text.String()
}
