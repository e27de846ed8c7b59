package invariant

import (
	"encoding/json"
	"slices"
)

// patchAsked: I32, of a call that patches a node, or gives back one that was patched.
func patchAsked(a *Auditor, s *State, c Call) {
	if !slices.Contains([]Verb{CheckNode, Patch, Restart, LookAt, Sign, Unmark}, c.Verb) || c.Raced {
		return
	}
	n := s.node(c.Node)
	if n == nil {
		return
	}
	m := s.behind(n)
	if m == nil { // replaced just now, and nobody can know before it has booted
		return
	}
	mark, marked := a.markOf(n)
	marked = marked && mark.Run == c.Run
	starts, back := c.Verb == Patch || c.Verb == Restart, c.Verb == Unmark && !n.kept()
	for _, rule := range []struct {
		broken bool
		says   string
	}{
		{starts && !n.blocked() && !a.freed[n.Name], "only a node that is blocked is patched or restarted"},
		{c.Verb != Sign && c.Verb != Unmark && !marked, "a run does nothing to a node that it has not marked"},
		{c.Verb == Patch && marked && !mark.Begun, "that packages are about to be changed stands on the node before they are"},
		{c.Verb == Restart && marked && !mark.Sealing, "that a node is about to be restarted stands on it before it is"},
		{c.Verb == Patch && !s.served(n), "the last node that serves is not taken"},
		{c.Held != "", "packages on hold are not asked for"},
		{c.Verb == Sign && !m.InOrder, "a node is signed only once it was seen to be in order in its present boot"},
		{back && m.Upgrading, "a node whose packages are being changed is not given back, unless it stays blocked"},
		{back && m.Unseen && !c.KeepsMark, "a node that was begun and not examined is not given back, unless it stays blocked"},
	} {
		if rule.broken {
			a.Violate("I32", "%s, %s of node %s: not so that %s", c.Process, c.Verb, n.Name, rule.says)
		}
	}
}

// served says whether the pool of a node has another one that takes pods.
func (s *State) served(n *Node) bool {
	return slices.ContainsFunc(s.Nodes, func(o Node) bool {
		return o.Name != n.Name && o.Pool == n.Pool && o.Ready && !o.Unschedulable && !o.blocked() && !o.kept()
	})
}

// patchedKept: I32, in the end.
func patchedKept(a *Auditor, s *State) {
	for i := range s.Nodes {
		n := &s.Nodes[i]
		m := s.behind(n)
		if m == nil {
			continue
		}
		var why struct{ Reason string }
		told := n.Annotations["kamino.dev/patch-failed"]
		switch {
		case m.Unseen && !a.freed[n.Name] && (!n.kept() || json.Unmarshal([]byte(told), &why) != nil || why.Reason == ""):
			a.Violate("I32", "node %s was begun and not examined, or is not in order, and does not stay blocked with a reason: %q",
				n.Name, told)
		case !m.Unseen && n.Annotations["kamino.dev/patch"]+n.Annotations["kamino.dev/patch-look"] != "":
			a.Violate("I32", "an answer of the agent is left on node %s, which was given back", n.Name)
		}
	}
}
