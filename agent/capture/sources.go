package capture

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"kamino.dev/kamino/boot"
	"kamino.dev/kamino/boot/read"
)

const (
	// journalLimit bounds what is read of the journal; more than that of PID 1, kernel and kubelet
	// is not a boot any more.
	journalLimit = 64 << 20
	fileLimit    = 64 << 20
	// metadataTimeout is short: on a machine without IMDS every record would wait for it.
	metadataTimeout = 2 * time.Second
)

// host says which machine and which boot this is.
func host(c *boot.Capture, root string) {
	line := func(path string) string {
		data, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(data))
	}
	c.Host.BootID = strings.ReplaceAll(line("proc/sys/kernel/random/boot_id"), "-", "")
	c.Host.Name = line("proc/sys/kernel/hostname")
	var u unix.Utsname
	if err := unix.Uname(&u); err == nil {
		c.Host.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	for l := range strings.Lines(line("etc/os-release")) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(l), "PRETTY_NAME="); ok {
			c.Host.OS = strings.Trim(name, `"'`)
		}
	}
}

// journal adds first activations, restarts, link changes and kubelet's milestones.
func (o Options) journal(ctx context.Context, c *boot.Capture) {
	args := []string{"-b", "-o", "export", "--no-pager",
		"--output-fields=MESSAGE,MESSAGE_ID,UNIT,_SYSTEMD_UNIT,SYSLOG_IDENTIFIER,_TRANSPORT,_PID,_HOSTNAME,KERNEL_USEC,INITRD_USEC,USERSPACE_USEC,JOB_RESULT"}
	if o.Root != "/" {
		args = append(args, "--root="+o.Root)
	}
	if o.Until > 0 && c.Manager.KernelRealtime > 0 {
		args = append(args, fmt.Sprintf("--until=@%d", (c.Manager.KernelRealtime.Duration()+o.Until)/time.Second)) // systemd.time(7)
	}
	args = append(args, "_PID=1", "+", "_TRANSPORT=kernel", "+", "SYSLOG_IDENTIFIER=systemd-networkd",
		"+", "_SYSTEMD_UNIT=kubelet.service", "+", "_SYSTEMD_UNIT=containerd.service", "+", "_SYSTEMD_UNIT=crio.service")
	cmd := exec.CommandContext(ctx, "journalctl", args...)
	pipe, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		o.note(c, "the journal was not read: %v", err)
		return
	}
	data, err := io.ReadAll(io.LimitReader(pipe, journalLimit))
	_, drainErr := io.Copy(io.Discard, pipe)
	if err = errors.Join(err, drainErr, cmd.Wait()); err != nil || len(bytes.TrimSpace(data)) == 0 {
		o.note(c, "the journal was not read: %v", cmpErr(err, "it is empty"))
		return
	}
	o.merge(c, "journal", read.Journal, data)
}

func cmpErr(err error, otherwise string) any {
	if err == nil {
		return otherwise
	}
	return err
}

// merge adds what another source says. Its notes are for those who have only that source.
func (o Options) merge(c *boot.Capture, source string, read func([]byte) (*boot.Capture, error), data []byte) {
	more, err := read(data)
	if err == nil {
		more.Notes = nil
		err = c.Merge(more)
	}
	if err != nil {
		o.note(c, "%s could not be parsed: %v", source, err)
	}
}

func (o Options) note(c *boot.Capture, format string, args ...any) {
	c.Notes = append(c.Notes, fmt.Sprintf(format, args...))
}

// readFile reads a file of the machine, up to a limit; the end of a longer one, which is the
// latest.
func (o Options) readFile(path string) ([]byte, error) {
	f, err := os.Open(filepath.Join(o.Root, path))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if over := info.Size() - fileLimit; over > 0 {
		if _, err := f.Seek(over, io.SeekStart); err != nil {
			return nil, err
		}
		r := bufio.NewReader(f)
		if _, err := r.ReadBytes('\n'); err != nil {
			return nil, err
		}
		return io.ReadAll(r)
	}
	return io.ReadAll(io.LimitReader(f, fileLimit))
}

// cloudInit adds its log, status and result
// (https://cloudinit.readthedocs.io/en/latest/explanation/return_codes.html).
func (o Options) cloudInit(c *boot.Capture) {
	if data, err := o.readFile("var/log/cloud-init.log"); err == nil {
		o.merge(c, "cloud-init.log", read.CloudInitLog, data)
	} else if !errors.Is(err, fs.ErrNotExist) {
		o.note(c, "cloud-init.log was not read: %v", err)
	}
	var status struct {
		V1 map[string]json.RawMessage `json:"v1"`
	}
	if data, err := o.readFile("run/cloud-init/status.json"); err == nil && json.Unmarshal(data, &status) == nil {
		var stage *string
		if json.Unmarshal(status.V1["stage"], &stage) == nil {
			c.CloudInit.Status = "done"
			if stage != nil && *stage != "" {
				c.CloudInit.Status = "running " + *stage
			}
		}
		o.statusStages(c, status.V1)
	}
	var result struct {
		V1 struct {
			Datasource string   `json:"datasource"`
			Errors     []string `json:"errors"`
		} `json:"v1"`
	}
	if data, err := o.readFile("run/cloud-init/result.json"); err == nil && json.Unmarshal(data, &result) == nil {
		if c.CloudInit.Datasource == "" {
			c.CloudInit.Datasource = result.V1.Datasource
		}
		c.CloudInit.Errors = append(c.CloudInit.Errors, result.V1.Errors...)
	}
}

// statusStages adds the stages that the log does not tell of. Their times were seconds since 1970
// up to cloud-init 24.1, and are seconds since the kernel's start from 24.4 on; no machine is up
// for three years, and no clock stands at 1973.
func (o Options) statusStages(c *boot.Capture, v1 map[string]json.RawMessage) {
	const uptimeBelow = 1e8
	offset := wallOffset(o.Clock.Now())
	for _, s := range []struct{ key, stage, unit string }{
		{"init-local", "init-local", "cloud-init-local.service"}, {"init", "init-network", "cloud-init.service"},
		{"modules-config", "modules-config", "cloud-config.service"}, {"modules-final", "modules-final", "cloud-final.service"},
	} {
		var t struct{ Start, Finished float64 }
		known := slices.ContainsFunc(c.Spans, func(have boot.Span) bool { return have.Kind == boot.SpanStage && have.Name == s.stage })
		if known || json.Unmarshal(v1[s.key], &t) != nil || t.Start <= 0 || t.Finished < t.Start || t.Finished > 1e11 {
			continue
		}
		from, to := boot.Micros(t.Start*1e6), boot.Micros(t.Finished*1e6)
		if t.Start >= uptimeBelow {
			from, to = from-offset, to-offset
		}
		if from > 0 && to <= boot.MaxStamp {
			c.Spans = append(c.Spans, boot.Span{Name: s.stage, Kind: boot.SpanStage, Unit: s.unit, Start: from, End: to,
				Source: "cloud-init status"})
		}
	}
}

// metadata asks IMDS which VM this is and which image version it came from
// (https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service).
func (o Options) metadata(ctx context.Context, c *boot.Capture) {
	if o.Metadata == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, metadataTimeout)
	defer cancel()
	var doc struct {
		VMID           string `json:"vmId"`
		StorageProfile struct {
			ImageReference struct {
				ID, Publisher, Offer, SKU, Version, ExactVersion string
			} `json:"imageReference"`
		} `json:"storageProfile"`
	}
	err := getJSON(ctx, o.Metadata+"/metadata/instance/compute?api-version=2021-02-01", &doc)
	if err != nil {
		o.note(c, "the image version is unknown: %v", err)
		return
	}
	ref := doc.StorageProfile.ImageReference
	c.Host.VMID, c.Host.Image = doc.VMID, ref.ID
	if ref.ID == "" && ref.Publisher != "" {
		version := ref.Version
		if ref.ExactVersion != "" {
			version = ref.ExactVersion
		}
		c.Host.Image = strings.Join([]string{ref.Publisher, ref.Offer, ref.SKU, version}, ":")
	}
}

func getJSON(ctx context.Context, url string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Metadata", "true")
	client := &http.Client{Transport: &http.Transport{Proxy: nil}} // IMDS refuses requests that came through a proxy
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("instance metadata service: %s", resp.Status)
	}
	return json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(into)
}
