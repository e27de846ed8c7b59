package seal

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"kamino.dev/kamino/agent/disk"
)

// removeMost bounds the removal of all of a runtime's containers.
const removeMost = 5 * time.Minute

// client is a program that knows a runtime's containers.
type client struct {
	name   string   // for people
	list   []string // prints what there is, an ID a line or word
	remove [][]string
	// ids says that remove takes IDs, behind its arguments.
	ids bool
}

// clients in the order in which they are asked. The runtime's interface comes first: through it the
// CNI gets the pods' addresses back. Docker and podman before containerd: they keep records of
// their own besides containerd's.
var clients = []client{
	{name: "the runtime's pods", list: []string{"crictl", "--timeout=60s", "pods", "--quiet"},
		remove: [][]string{{"crictl", "--timeout=60s", "rmp", "--all", "--force"}}},
	{name: "docker's containers", list: []string{"docker", "ps", "--all", "--quiet", "--no-trunc"},
		remove: [][]string{{"docker", "rm", "--force", "--volumes"}}, ids: true},
	{name: "podman's containers", list: []string{"podman", "ps", "--all", "--external", "--quiet", "--no-trunc"},
		remove: [][]string{{"podman", "pod", "rm", "--all", "--force"}, {"podman", "rm", "--all", "--force", "--volumes"}}},
}

// clear removes all containers of all runtimes, and asks each again. Who does not answer, because
// it is not installed or its runtime does not run, is left to what the runtimes' records on the
// disk say (noContainers).
func (s *Services) clear(ctx context.Context) error {
	var left error
	for _, c := range clients {
		left = errors.Join(left, s.remove(ctx, c))
	}
	namespaces, _ := s.ask(ctx, "ctr", "namespaces", "list", "--quiet")
	for _, n := range namespaces {
		ctr := func(args ...string) []string { return append([]string{"ctr", "--namespace=" + n}, args...) }
		for _, c := range []client{
			{name: "containerd's tasks in namespace " + n, list: ctr("tasks", "list", "--quiet"),
				remove: [][]string{ctr("tasks", "delete", "--force")}, ids: true},
			{name: "containerd's containers in namespace " + n, list: ctr("containers", "list", "--quiet"),
				remove: [][]string{ctr("containers", "delete")}, ids: true},
		} {
			left = errors.Join(left, s.remove(ctx, c))
		}
		s.collect(ctx, n)
	}
	return left
}

// collect has containerd remove what nothing refers to any more, and waits for it. Without that the
// writable layer of a removed container stays on the disk until the next collection, which may be
// after the next start (seen with containerd 1.6.20); deleting a lease with --sync is how a client
// asks for one (containerd's docs/garbage-collection.md).
func (s *Services) collect(ctx context.Context, namespace string) {
	id, known := s.ask(ctx, "ctr", "--namespace="+namespace, "leases", "create")
	if known && len(id) == 1 {
		s.try(ctx, removeMost, "ctr", "--namespace="+namespace, "leases", "delete", "--sync", id[0])
	}
}

// remove removes what a client lists. An error names what is still there afterwards.
func (s *Services) remove(ctx context.Context, c client) error {
	ids, known := s.ask(ctx, c.list...)
	if !known || len(ids) == 0 {
		return nil
	}
	for _, command := range c.remove {
		if c.ids {
			command = slices.Concat(command, ids)
		}
		s.try(ctx, removeMost, command[0], command[1:]...)
	}
	left, known := s.ask(ctx, c.list...)
	if known && len(left) == 0 {
		return nil
	}
	if !known {
		left = ids
	}
	return fmt.Errorf("seal refused: %s cannot be removed: %s; remove them on the donor (`%s` lists them), or see why they stay",
		c.name, disk.Line(strings.Join(left, " ")), strings.Join(c.list, " "))
}

// ask returns the words that a command prints; known is false when it is not installed or failed.
func (s *Services) ask(ctx context.Context, command ...string) (words []string, known bool) {
	out, err := s.run(ctx, askMost, command[0], command[1:]...)
	if err != nil && !errors.Is(err, exec.ErrNotFound) {
		s.Log.Warn("does not answer", "command", strings.Join(command, " "), "error", err)
	}
	return strings.Fields(out), err == nil
}
