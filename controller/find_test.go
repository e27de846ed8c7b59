package controller

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"kamino.dev/kamino"
	"kamino.dev/kamino/api/v1alpha1"
)

// manyNodes are nodes of pools, as known tells them. Some IDs of pools differ by case alone, some
// have one name in two groups, and some nodes belong to no pool.
func manyNodes(pools, each int) known {
	k := newKnown()
	for i := range pools * each {
		p := i / each
		n := kamino.Node{Name: fmt.Sprint("n", i), Labels: map[string]string{"pool": fmt.Sprint(p), "zone": fmt.Sprint(i % 3), "odd": fmt.Sprint(p % 2)}}
		if i%7 == 0 {
			delete(n.Labels, "zone")
		}
		k.nodes = append(k.nodes, n)
		id := kamino.PoolID(fmt.Sprintf("/groups/g%d/pools/p%d", p%4, p/2))
		switch {
		case i%11 == 0:
			continue
		case p%5 == 0 && i%2 == 0:
			id = kamino.PoolID(strings.ToUpper(string(id)))
		case p%9 == 0:
			id = kamino.PoolID(fmt.Sprint("bare", p))
		}
		k.of[n.Name] = id
		k.add(id)
	}
	return k
}

// TestFindAsAScan: what the index finds is what a look at every node and every pool finds.
func TestFindAsAScan(t *testing.T) {
	k, random := manyNodes(40, 6), rand.New(rand.NewPCG(1, 2))
	sorted := func(ids []kamino.PoolID) []kamino.PoolID { slices.Sort(ids); return ids }
	ambiguous, none := 0, 0
	for id := range k.pools {
		for _, name := range []string{id.Name(), string(id), strings.ToUpper(string(id)), strings.ToUpper(id.Name()), id.Name() + "x"} {
			var want []kamino.PoolID
			for other := range k.pools {
				if strings.EqualFold(other.Name(), name) || strings.EqualFold(string(other), name) {
					want = append(want, other)
				}
			}
			if got := slices.Clone(k.named(name)); !slices.Equal(sorted(got), sorted(want)) {
				t.Errorf("named(%q) = %q, want %q", name, got, want)
			}
			switch len(want) {
			case 0:
				none++
			case 1:
			default:
				ambiguous++
			}
		}
	}
	if ambiguous == 0 || none == 0 {
		t.Errorf("%d names of two pools, %d of none: the nodes show nothing", ambiguous, none)
	}
	fits := 0
	for range 500 {
		labels := map[string]string{"pool": fmt.Sprint(random.IntN(42))}
		for _, l := range []struct {
			key    string
			values int
		}{{"zone", 4}, {"odd", 2}, {"absent", 1}} {
			if random.IntN(3) == 0 {
				labels[l.key] = fmt.Sprint(random.IntN(l.values))
			}
		}
		if random.IntN(4) == 0 && len(labels) > 1 {
			delete(labels, "pool")
		}
		var want []int
		for i, n := range k.nodes {
			all := true
			for key, value := range labels {
				has, ok := n.Labels[key]
				all = all && ok && has == value
			}
			if all {
				want = append(want, i)
			}
		}
		if got := k.fitting(labels); !slices.Equal(got, want) {
			t.Errorf("nodes with %v: %v, want %v", labels, got, want)
		}
		fits += len(want)
	}
	if fits == 0 {
		t.Error("no node had the labels that were asked for")
	}
}

// TestFindLeavesTheIndex: what one search filters is whole for the next.
func TestFindLeavesTheIndex(t *testing.T) {
	k := manyNodes(4, 6)
	before := slices.Clone(k.labels("pool", "1"))
	k.fitting(map[string]string{"pool": "1", "zone": "1"})
	if after := k.labels("pool", "1"); !slices.Equal(after, before) || len(before) != 6 {
		t.Errorf("nodes with the label: %v, then %v, want the same 6", before, after)
	}
}

// BenchmarkOthers is who else means a pool, of a thousand prototypes and 15,000 nodes.
func BenchmarkOthers(b *testing.B) {
	for _, by := range []string{"name", "labels"} {
		b.Run(by, func(b *testing.B) {
			k := newKnown()
			all := make([]v1alpha1.NodePrototype, 1000)
			for p := range all {
				id := kamino.PoolID(fmt.Sprintf("/groups/g%d/pools/p%d", p%10, p))
				all[p].Name = fmt.Sprint(p)
				if by == "name" {
					all[p].Spec.Pool = id.Name()
				} else {
					all[p].Spec.NodeSelector = map[string]string{"pool": fmt.Sprint(p)}
				}
				for i := range 15 {
					n := kamino.Node{Name: fmt.Sprintf("n%d-%d", p, i), Labels: map[string]string{"pool": fmt.Sprint(p)}}
					k.nodes, k.of[n.Name] = append(k.nodes, n), id
				}
				k.add(id)
			}
			for b.Loop() {
				clear(k.labelled) // as each pass begins
				if got := k.others("0", "/groups/g0/pools/p0", all); len(got) != 0 {
					b.Fatal(got)
				}
			}
		})
	}
}
