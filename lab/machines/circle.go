package machines

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/poolstate"
)

// published is the version of the lab's packages that comes while the pool runs.
const published = "2.0"

// Circle is what became of a pool when its packages got new versions: one node is patched and
// becomes the image, and the next machine has them all. Its JSON is read by programs.
type Circle struct {
	OK          bool     `json:"ok"`
	Failures    []string `json:"failures"`
	Accelerator string   `json:"accelerator"`
	Published   string   `json:"published"` // version of each of Packages
	Former      string   `json:"formerVersion"`
	Version     string   `json:"version"`
	Patched     string   `json:"patched"` // the node that kamino patch took
	Donor       string   `json:"donor"`   // the one that kamino auto-update chose
	Restarted   bool     `json:"restarted"`
	Changed     []string `json:"changed"` // packages, as the patch reports them
	// Before and After are the packages in which the next node would differ from the patched one,
	// as kamino status --diff names them: before that is the image, and afterwards.
	Before []string   `json:"before"`
	After  []string   `json:"after"`
	Later  int        `json:"laterRequests"` // to the repository since the patch, of any machine
	Acts   []Act      `json:"acts"`
	Nodes  []PoolNode `json:"nodes"` // the next one is the last
}

// Act is a part of the story, and how long it took.
type Act struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
}

// PoolNode is a node of the circle: as it was when the packages were published, and at the end.
type PoolNode struct {
	Name     string            `json:"name"`
	Before   map[string]string `json:"before,omitempty"` // versions of Packages; nil of the next node
	After    map[string]string `json:"after"`
	Rebooted bool              `json:"rebooted"`
	Requests int               `json:"requests"` // to the repository since then
}

// judge says what does not hold of the circle.
func (c *Circle) judge() (wrong []string) {
	expect := func(holds bool, format string, args ...any) {
		if !holds {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}
	expect(c.Restarted, "%s was not restarted, although %s asks for it", c.Patched, Rebooting)
	expect(c.Donor == c.Patched, "kamino auto-update chose %s, and %s is patched", c.Donor, c.Patched)
	expect(c.Version != "" && c.Version != c.Former, "the version is %q, and was %q", c.Version, c.Former)
	for what, names := range map[string][]string{"the patch changed": c.Changed, "before, status --diff names": c.Before} {
		expect(slices.Equal(names, Packages), "%s %v, not %v", what, names, Packages)
	}
	expect(len(c.After) == 0, "afterwards status --diff names %v", c.After)
	expect(c.Later == 0, "after the patch there were %d requests to the repository", c.Later)
	for i, n := range c.Nodes {
		isNext, patched := i == len(c.Nodes)-1, n.Name == c.Patched
		for _, name := range Packages {
			want := "1.0"
			expect(isNext || n.Before[name] == want, "%s had %s %s, not %s", n.Name, name, n.Before[name], want)
			if isNext || patched {
				want = c.Published
			}
			expect(n.After[name] == want, "%s has %s %s, not %s", n.Name, name, n.After[name], want)
		}
		expect(isNext || n.Rebooted == patched, "%s: rebooted is %t", n.Name, n.Rebooted)
		expect((n.Requests > 0) == patched, "%s sent %d requests to the repository", n.Name, n.Requests)
	}
	return wrong
}

// DemoCircle plays the whole circle on three real machines. before is called before the lab is
// stopped. The report says what did not hold; an error means that it could not be shown.
func DemoCircle(ctx context.Context, o Options, out io.Writer, before func(*Lab)) (Circle, error) {
	c := Circle{Failures: []string{}, Accelerator: Accelerator(), Published: published}
	fmt.Fprintf(out, "demo: machines are QEMU with %s; the base image is built if the cache has none\n", c.Accelerator)
	o.Nodes = 3
	l, err := Start(ctx, o)
	if err != nil {
		return c, err
	}
	defer l.Stop()
	s := &Stage{Lab: l, Out: out}
	err = s.circle(ctx, &c)
	before(l)
	c.OK = err == nil && len(c.Failures) == 0
	return c, err
}

// circle is the story. What the donor's first version has is what a pool has that was made before.
func (s *Stage) circle(ctx context.Context, c *Circle) error {
	var old []emulator.Instance
	var was []photo
	patchedBy := 0 // requests to the repository until the patch has ended
	for _, act := range []struct {
		name string
		do   func() error
	}{
		{"three generic machines join", func() error {
			old = s.Cloud.Instances()
			return errors.Join(s.Join(ctx), s.Work(ctx, 2))
		}},
		{"the pool has an image", func() error {
			err := s.Prototype(ctx, 0)
			c.Former = s.Result.Version
			return errors.Join(err, s.back(ctx, s.Donor))
		}},
		{"new versions of three packages", func() (err error) {
			if was, err = s.photograph(ctx, old); err != nil {
				return err
			}
			return s.Publish(published)
		}},
		{"kamino patch", func() error {
			err := s.patchPool(ctx, c)
			_, patchedBy = s.packages.requests("")
			return err
		}},
		{"kamino status --diff", func() (err error) {
			c.Before, err = s.diff(ctx, c.Patched)
			return err
		}},
		{"kamino auto-update", func() error { return s.renew(ctx, c) }},
		{"kamino status --diff", func() (err error) {
			c.After, err = s.diff(ctx, c.Patched)
			return err
		}},
		{"the autoscaler's next machine", func() error { return s.ScaleOut(ctx, len(old)+1) }},
		{"a look at every node", func() error {
			if len(s.Clone) != 1 {
				return fmt.Errorf("%d machines came from the new version, not 1", len(s.Clone))
			}
			return s.look(ctx, c, append(old, s.Clone...), was)
		}},
	} {
		began := time.Now()
		if err := act.do(); err != nil {
			return fmt.Errorf("%s: %w", act.name, err)
		}
		c.Acts = append(c.Acts, Act{act.name, time.Since(began).Seconds()})
	}
	_, all := s.packages.requests("")
	c.Later = all - patchedBy
	c.Failures = append(c.Failures, c.judge()...)
	return nil
}

// back waits until an instance is a Ready node that takes pods.
func (s *Stage) back(ctx context.Context, i emulator.Instance) error {
	err := s.await(ctx, i.Name+" to be back", func() (bool, error) {
		now, _ := s.Cloud.Instance(i.ID)
		n, err := s.node(ctx, i)
		return err == nil && now.PowerState == emulator.PowerRunning && isReady(n, time.Now().Add(-time.Minute)) && len(n.Spec.Taints) == 0,
			err
	})
	if err != nil {
		return fmt.Errorf("%w\nthe end of its console:\n%s", err, s.Console(i, 30))
	}
	return nil
}

// photo is how a machine stands.
type photo struct {
	boot     string
	packages map[string]string
	requests int
}

func (s *Stage) photograph(ctx context.Context, machines []emulator.Instance) (all []photo, err error) {
	for _, i := range machines {
		n, err := s.node(ctx, i)
		if err != nil {
			return nil, err
		}
		m, err := s.Factory.find(i)
		if err != nil {
			return nil, err
		}
		out, _, err := s.Run(ctx, i, `dpkg-query --show --showformat '${Package} ${Version}\n' `+strings.Join(Packages, " "))
		if err != nil {
			return nil, err
		}
		p := photo{boot: n.Status.NodeInfo.BootID, packages: map[string]string{}}
		p.requests, _ = s.packages.requests(m.Port.Address.Addr().String())
		for line := range strings.Lines(out) {
			name, version, _ := strings.Cut(strings.TrimSpace(line), " ")
			p.packages[name] = version
		}
		all = append(all, p)
	}
	return all, nil
}

// look compares every node with how it stood; the last of them is new.
func (s *Stage) look(ctx context.Context, c *Circle, machines []emulator.Instance, was []photo) error {
	now, err := s.photograph(ctx, machines)
	if err != nil {
		return err
	}
	var names []string
	var ids []Identity
	for n, i := range machines {
		id, err := s.Inspect(ctx, i)
		if err != nil {
			return err
		}
		names, ids = append(names, i.Name), append(ids, id)
		node := PoolNode{Name: strings.ToLower(i.ComputerName), After: now[n].packages, Requests: now[n].requests}
		if n < len(was) {
			node.Before, node.Rebooted, node.Requests = was[n].packages, now[n].boot != was[n].boot, now[n].requests-was[n].requests
		} else {
			c.Failures = append(c.Failures, id.notFast(i.Name)...)
		}
		c.Nodes = append(c.Nodes, node)
	}
	c.Failures = append(c.Failures, Twins(names, ids)...)
	return nil
}

// kamino runs the product, and reads the JSON that it prints.
func (s *Stage) kamino(ctx context.Context, into any, args ...string) error {
	s.say("kamino %s", strings.Join(args, " "))
	cmd := s.Command(ctx, append(args, "--image", s.Images.Kamino, "-o", "json")...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, s.Out
	runErr := cmd.Run()
	if err := json.Unmarshal(out.Bytes(), into); err != nil {
		return fmt.Errorf("run kamino %s: %v; its output is no JSON: %w", args[0], runErr, err)
	}
	if runErr != nil {
		return fmt.Errorf("run kamino %s: %w: %s", args[0], runErr, &out)
	}
	return nil
}

// patchPool lets kamino choose a node and patch it. Of unattended-upgrades it would be none of the
// packages: their repository has no origin.
func (s *Stage) patchPool(ctx context.Context, c *Circle) error {
	var r engine.PatchResult
	if err := s.kamino(ctx, &r, "patch", "--pool", PoolName, "--manager", "apt", "--return", patienceClone.String(), "--min-ready", "10s",
		"--grace-period", "30"); err != nil {
		return err
	}
	if len(r.Nodes) != 1 || r.Nodes[0].Report == nil {
		return fmt.Errorf("kamino patch took %d nodes, or has no report: %+v", len(r.Nodes), r.Nodes)
	}
	one := r.Nodes[0]
	c.Patched, c.Restarted = one.Node, one.Restarted
	for _, moved := range one.Report.Changed {
		c.Changed = append(c.Changed, moved.Name)
	}
	s.say("%s is patched: %s", one.Node, strings.Join(c.Changed, ", "))
	return nil
}

// diff names the packages in which the next node would differ from one that runs.
func (s *Stage) diff(ctx context.Context, node string) (names []string, err error) {
	var d engine.PackageDiff
	err = s.kamino(ctx, &d, "status", "--diff", "--node", node)
	for _, p := range d.Differs {
		names = append(names, p.Name)
	}
	return names, err
}

// renew makes the disk of the best node the image, proves it by a canary and promotes it. Today's
// version is there already, so kamino auto-update would wait until tomorrow.
func (s *Stage) renew(ctx context.Context, c *Circle) error {
	var plans []poolstate.PoolPlan
	if err := s.kamino(ctx, &plans, "plan", "--pool", PoolName, "--minimum-ready-time", "0s"); err != nil {
		return err
	}
	if len(plans) != 1 || len(plans[0].Candidates) == 0 || plans[0].Candidates[0].Rank != 1 {
		return fmt.Errorf("kamino plan has no candidate: %+v", plans)
	}
	var u Update
	c.Donor = plans[0].Candidates[0].Node
	if err := s.kamino(ctx, &u, "update", "--target-node", c.Donor, "--again", "--prove", "canary",
		"--prove-for", "1m", "--boot-budget", "10m", "--grace-period", "30"); err != nil {
		return err
	}
	c.Version = u.Version
	for _, i := range s.Cloud.Instances() {
		if strings.EqualFold(i.ComputerName, c.Donor) {
			return s.back(ctx, i)
		}
	}
	return fmt.Errorf("the donor %q is no machine of the pool", c.Donor)
}
