package seal

import (
	"embed"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"go.yaml.in/yaml/v3"
	"kamino.dev/kamino/agent/disk"
)

// Where the agent lives on a node.
const (
	BinaryPath   = "opt/kamino/bin/kamino-agent"
	SettingsPath = "etc/kamino/agent.yaml"
	unitDir      = "etc/systemd/system"
	// snapKubelet is kubelet in Canonical's images for EKS.
	snapKubelet = "snap.kubelet-eks.daemon.service"
)

//go:embed units
var unitFiles embed.FS

// Units are the systemd units that seal installs, in the order in which they run.
var Units = []string{"kamino-identity.service", "kamino-ssh-keys.service", "kamino-boot.service", "kamino-watch.service",
	"kamino-capture.service",
	"kamino-ssh-rsa.timer", "kamino-ssh-rsa.service"}

// Settings tell the agent on a clone how to behave. Seal writes them.
type Settings struct {
	APIVersion string   `yaml:"apiVersion"`
	Kind       string   `yaml:"kind"`
	FirstBoot  string   `yaml:"firstBoot"`
	Join       string   `yaml:"join"`
	Sources    []string `yaml:"sources"`
}

// ReadSettings reads what seal left; the zero value of a field is its default.
func ReadSettings(d *disk.Disk) (Settings, error) {
	s := Settings{FirstBoot: FirstBootAgent, Join: JoinFresh, Sources: []string{"imds://userData", "file:///etc/kamino/nodeconfig.yaml"}}
	if !d.Exists(SettingsPath) {
		return s, nil
	}
	data, err := d.ReadFile(SettingsPath, disk.Small)
	if err != nil {
		return s, fmt.Errorf("read settings: %w", err)
	}
	if err := yaml.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("decode /%s: %w", SettingsPath, err)
	}
	return s, nil
}

// installed are the files that every clone needs and that are not there yet.
func installed(d *disk.Disk, o Options) ([]Match, error) {
	all, err := wanted(d, o)
	return changed(d, all), err
}

// wanted are the files that every clone needs, as matches of a rule without a former content.
func wanted(d *disk.Disk, o Options) ([]Match, error) {
	settings, err := yaml.Marshal(Settings{"kamino.dev/v1alpha1", "AgentConfig", o.FirstBoot, o.Join, o.Config.Sources})
	if err != nil {
		return nil, err
	}
	out := []Match{put(SettingsPath, string(settings), 0o644)}
	for _, name := range Units {
		text, err := unitFiles.ReadFile("units/" + name)
		if err != nil {
			return nil, err
		}
		out = append(out, put(unitDir+"/"+name, string(text), 0o644))
		// What "systemctl enable" would do; on an attached disk there is no systemd to ask.
		if link, ok := wants(name, string(text)); ok {
			out = append(out, Match{Path: link, New: &Content{Target: "/" + unitDir + "/" + name}})
		}
	}
	gate, err := unitFiles.ReadFile("units/00-kamino.conf")
	if err != nil {
		return nil, err
	}
	out = append(out, put(unitDir+"/kubelet.service.d/00-kamino.conf", string(gate), 0o644))
	if d.Exists(unitDir + "/" + snapKubelet) {
		out = append(out, put(unitDir+"/"+snapKubelet+".d/00-kamino.conf", string(gate), 0o644))
	}
	if o.FirstBoot == FirstBootAgent {
		later, err := unitFiles.ReadFile("units/00-kamino-later.conf")
		if err != nil {
			return nil, err
		}
		for _, unit := range azureAgents(d) {
			out = append(out, put(unitDir+"/"+unit+".d/00-kamino.conf", string(later), 0o644))
		}
		if d.Exists("etc/cloud") {
			out = append(out, put("etc/cloud/cloud-init.disabled", "", 0o644))
		}
		if d.Exists("etc/systemd/network") {
			network, err := unitFiles.ReadFile("units/99-kamino.network")
			if err != nil {
				return nil, err
			}
			out = append(out, put("etc/systemd/network/99-kamino.network", string(network), 0o644))
		}
		if d.Exists("etc/netplan") {
			// netplan's generator starts networkd, and does so only when it has a file.
			plan, err := unitFiles.ReadFile("units/99-kamino.yaml")
			if err != nil {
				return nil, err
			}
			out = append(out, put("etc/netplan/99-kamino.yaml", string(plan), 0o600))
		}
	}
	return out, nil
}

// azureAgents are the units of the Azure Linux Agent that the disk has: Debian and Ubuntu call it
// walinuxagent, Red Hat, SUSE and Azure Linux waagent.
func azureAgents(d *disk.Disk) (units []string) {
	for _, unit := range []string{"walinuxagent.service", "waagent.service"} {
		for _, dir := range []string{"usr/lib/systemd/system", "lib/systemd/system", unitDir} {
			if info, err := d.Lstat(dir + "/" + unit); err == nil && info.Mode().IsRegular() {
				units = append(units, unit)
				break
			}
		}
	}
	return units
}

func put(name, text string, mode os.FileMode) Match {
	return Match{Path: name, New: &Content{Data: []byte(text), Mode: mode}}
}

// wants is the link by which a unit is enabled, if it says what wants it.
func wants(unit, text string) (link string, ok bool) {
	for line := range strings.Lines(text) {
		if target, ok := strings.CutPrefix(strings.TrimSpace(line), "WantedBy="); ok {
			return path.Join(unitDir, target+".wants", unit), true
		}
	}
	return "", false
}

// changed leaves out what is there already, so that a second seal has nothing to do.
func changed(d *disk.Disk, all []Match) []Match {
	var out []Match
	for _, m := range all {
		if m.New.Target != "" {
			if target, err := d.Readlink(m.Path); err == nil && target == m.New.Target {
				continue
			}
		} else if data, err := d.ReadFile(m.Path, disk.Small); err == nil && string(data) == string(m.New.Data) {
			continue
		}
		out = append(out, m)
	}
	return out
}

// InstallBinary copies this program to the disk, unless it runs from there. It is done before the
// stage begins, since a program without a unit does nothing, and an interrupted seal needs it to be
// taken back.
func InstallBinary(d *disk.Disk, from string) error {
	src, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("install agent: %w", err)
	}
	defer src.Close()
	if here, err := src.Stat(); err == nil {
		if there, err := os.Stat(d.Host(BinaryPath)); err == nil && os.SameFile(here, there) {
			return nil
		}
	}
	if err := d.CopyIn(BinaryPath, io.Reader(src), 0o755); err != nil {
		return fmt.Errorf("install agent: %w", err)
	}
	return nil
}
