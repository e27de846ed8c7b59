package machines

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/azure/emulator"
)

// Report is what the demonstration found. Its JSON is read by programs.
type Report struct {
	OK               bool              `json:"ok"`
	Failures         []string          `json:"failures"`
	Accelerator      string            `json:"accelerator"`
	Donor            string            `json:"donor"`
	Version          string            `json:"version"`
	Steps            []kamino.StepTime `json:"steps"`
	Seconds          float64           `json:"seconds"`
	DonorAwaySeconds float64           `json:"donorAwaySeconds"`
	ImageBytes       int64             `json:"imageBytes"`
	Machines         []Machine         `json:"machines"`
}

// Machine is one node of the demonstration.
type Machine struct {
	Node         string  `json:"node"`
	Image        string  `json:"image"` // version, or generic
	ReadySeconds float64 `json:"readySeconds"`
	Generations  int     `json:"generations"` // lines of its ancestry
	Identity
}

// Demo does the main job once, on real machines: a generic node joins and works,
// is patched, becomes the image of its pool; two clones join. before is called
// before the lab is stopped. The report says what did not hold; an error means
// that it could not be shown.
func Demo(ctx context.Context, o Options, out io.Writer, before func(*Lab)) (Report, error) {
	r := Report{Failures: []string{}, Accelerator: Accelerator()}
	fmt.Fprintf(out, "demo: machines are QEMU with %s; the base image is built if the cache has none\n", r.Accelerator)
	l, err := Start(ctx, o)
	if err != nil {
		return r, err
	}
	defer l.Stop()
	s := &Stage{Lab: l, Out: out}
	err = s.Play(ctx)
	s.report(&r)
	if err == nil {
		err = s.compare(ctx, &r)
	}
	before(l)
	r.OK = err == nil && len(r.Failures) == 0
	return r, err
}

// Play is the whole story.
func (s *Stage) Play(ctx context.Context) error {
	for _, act := range []func(context.Context) error{
		s.Join,
		func(ctx context.Context) error { return s.Work(ctx, 2) },
		s.Patch,
		func(ctx context.Context) error { return s.Prototype(ctx, 1) },
		func(ctx context.Context) error { return s.ScaleOut(ctx, len(s.Cloud.Instances())+1) },
	} {
		if err := act(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *Stage) report(r *Report) {
	r.Donor, r.Version, r.Steps, r.DonorAwaySeconds = s.Result.Donor, s.Result.Version, s.Result.Steps, s.Result.AwaySeconds
	for _, step := range s.Result.Steps {
		r.Seconds += step.Seconds
	}
	for _, i := range s.Clone {
		if info, err := os.Stat(s.Factory.artifact(i.ImageID)); err == nil {
			r.ImageBytes = info.Size()
		}
	}
}

// compare asks every machine who it is.
func (s *Stage) compare(ctx context.Context, r *Report) error {
	var names []string
	var ids []Identity
	took := append([]time.Duration{s.Joined}, s.Cloned...)
	for n, i := range append([]emulator.Instance{s.Donor}, s.Clone...) {
		id, err := s.Inspect(ctx, i)
		if err != nil {
			return err
		}
		image := "generic"
		if i.ImageID != "" {
			image = filepath.Base(i.ImageID)
		}
		generations := 0
		if id.Ancestry != "" {
			generations = strings.Count(id.Ancestry, "|") + 1
		}
		names, ids = append(names, i.Name), append(ids, id)
		r.Machines = append(r.Machines, Machine{strings.ToLower(i.ComputerName), image, took[n].Seconds(), generations, id})
		if id.Patch != "2.0" {
			r.Failures = append(r.Failures, fmt.Sprintf("%s has version %q of the patched package", i.Name, id.Patch))
		}
		if n > 0 {
			r.Failures = append(r.Failures, id.notFast(i.Name)...)
		}
	}
	r.Failures = append(r.Failures, Twins(names, ids)...)
	return nil
}

// notFast says what ran on a clone and should not have.
func (id Identity) notFast(name string) []string {
	var found []string
	if id.SystemState != "running" {
		found = append(found, fmt.Sprintf("%s is %s, not running; failed units: %s", name, id.SystemState, id.FailedUnits))
	}
	if strings.Trim(id.CloudInit, "inactive|") != "" {
		found = append(found, fmt.Sprintf("cloud-init ran on %s: %s", name, id.CloudInit))
	}
	if id.Extensions != "" {
		found = append(found, fmt.Sprintf("an extension ran on %s: %s", name, id.Extensions))
	}
	if id.Pulled != "" {
		found = append(found, fmt.Sprintf("%s pulled an image: %s", name, id.Pulled))
	}
	return found
}
