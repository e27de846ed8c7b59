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
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"kamino.dev/kamino/boot"
)

const (
	// journalLimit bounds what is read of the journal; more than that of PID 1, kernel and kubelet is not a boot any more.
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
	args := []string{"-b", "-o", "export", "--no-pager", "--output-fields=MESSAGE,MESSAGE_ID,UNIT,_SYSTEMD_UNIT,SYSLOG_IDENTIFIER,_TRANSPORT,_PID,_HOSTNAME,KERNEL_USEC,INITRD_USEC,USERSPACE_USEC"}
	if o.Root != "/" {
		args = append(args, "--root="+o.Root)
	}
	args = append(args, "_PID=1", "+", "_TRANSPORT=kernel", "+", "SYSLOG_IDENTIFIER=systemd-networkd", "+", "_SYSTEMD_UNIT=kubelet.service")
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
	o.merge(c, data, "journal")
}

func cmpErr(err error, otherwise string) any {
	if err == nil {
		return otherwise
	}
	return err
}

// merge adds what another source says. Its notes are for those who have only that source.
func (o Options) merge(c *boot.Capture, data []byte, source string) {
	more, err := boot.Read(data)
	if err == nil {
		more.Notes = nil
		err = c.Merge(more)
	}
	if err != nil {
		o.note(c, "%s was not understood: %v", source, err)
	}
}

func (o Options) note(c *boot.Capture, format string, args ...any) {
	c.Notes = append(c.Notes, fmt.Sprintf(format, args...))
}

// readFile reads a file of the machine, up to a limit; the end of a longer one, which is the latest.
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

// cloudInit adds its log, status and result (https://cloudinit.readthedocs.io/en/latest/explanation/return_codes.html).
func (o Options) cloudInit(c *boot.Capture) {
	if data, err := o.readFile("var/log/cloud-init.log"); err == nil {
		o.merge(c, data, "cloud-init.log")
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

// extensions adds the tasks that extensions report as events; on AKS those are the steps of its script. The Azure agent
// deletes the files after it has uploaded them, so only an early record has them (assumed, unverified on real Azure).
func (o Options) extensions(c *boot.Capture) {
	files, err := filepath.Glob(filepath.Join(o.Root, "var/log/azure/*/events/*.json"))
	if err != nil || len(files) == 0 {
		return
	}
	offset := wallOffset(o.Clock.Now())
	unit := "walinuxagent.service"
	if c.Unit(unit) == nil && c.Unit("waagent.service") != nil {
		unit = "waagent.service"
	}
	for _, f := range files {
		rel, err := filepath.Rel(o.Root, f)
		if err != nil {
			continue
		}
		data, err := o.readFile(rel)
		if err != nil {
			continue
		}
		if s, ok := extensionTask(data, offset); ok {
			s.Unit = unit
			c.Spans = append(c.Spans, s)
		}
	}
}

// extensionTask reads an event: Timestamp is the task's start, OperationId its end, both wall clock in UTC.
func extensionTask(data []byte, offset boot.Micros) (boot.Span, bool) {
	var e struct{ Timestamp, OperationID, TaskName string }
	var raw map[string]any
	if json.Unmarshal(data, &raw) != nil {
		return boot.Span{}, false
	}
	e.Timestamp, _ = raw["Timestamp"].(string)
	e.OperationID, _ = raw["OperationId"].(string)
	e.TaskName, _ = raw["TaskName"].(string)
	start, ok := eventTime(e.Timestamp, offset)
	end, ok2 := eventTime(e.OperationID, offset)
	if !ok || !ok2 || end < start || e.TaskName == "" {
		return boot.Span{}, false
	}
	return boot.Span{Name: e.TaskName, Kind: boot.SpanTask, Start: start, End: end, Source: "extension"}, true
}

func eventTime(s string, offset boot.Micros) (boot.Micros, bool) {
	for _, layout := range []string{"2006-01-02 15:04:05.000", "2006-01-02 15:04:05", time.RFC3339Nano} {
		if t, err := time.Parse(layout, s); err == nil {
			at := boot.Micros(t.UnixMicro()) - offset
			return at, at > 0
		}
	}
	return 0, false
}

// wallOffset is the difference of the wall clock and the monotonic one now.
func wallOffset(now time.Time) boot.Micros {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0
	}
	return boot.Micros(now.UnixMicro()) - boot.Micros(ts.Nano()/1000)
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
