package emulator

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"
)

// meta is what everything has that EC2 keeps.
type meta struct {
	ID      string
	Order   int // of creation
	Tags    map[string]string
	Created time.Time
	Visible time.Time // when Describe calls know of it
	Tagged  time.Time // when filters by tag find it
}

func (m *meta) base() *meta { return m }

// thing is anything that a Describe call of EC2 lists.
type thing interface {
	base() *meta
	// fact is what a filter of that name compares with; ok is false where there is no such filter.
	fact(filter string) (values []string, ok bool)
}

// store is all there is. It is plain data, so that a copy can be kept for stale reads.
type store struct {
	Serial     int
	Instances  map[string]*instance
	Volumes    map[string]*volume
	Snapshots  map[string]*snapshot
	Images     map[string]*image
	Templates  map[string]*template
	Groups     map[string]*group
	Parameters map[string]*parameter
	// Configurations are launch configurations, the templates of before; they are only read.
	Configurations map[string]*configuration
	Tokens         map[string]remembered
	FreeNames      map[string]time.Time // image names of deregistered images, until when they are refused
}

// remembered is what was answered to a client token.
type remembered struct {
	Digest string
	ID     string
}

func newStore() *store {
	return &store{
		Instances: map[string]*instance{}, Volumes: map[string]*volume{}, Snapshots: map[string]*snapshot{}, Images: map[string]*image{},
		Templates: map[string]*template{}, Groups: map[string]*group{}, Parameters: map[string]*parameter{},
		Tokens:    map[string]remembered{},
		FreeNames: map[string]time.Time{}, Configurations: map[string]*configuration{},
	}
}

// copy is a store that shares nothing with the first.
func (st *store) copy() *store {
	raw, err := json.Marshal(st)
	second := newStore()
	if err == nil {
		err = json.Unmarshal(raw, second)
	}
	if err != nil {
		panic(err) // plain data; cannot happen
	}
	return second
}

// born makes the meta of a new thing. IDs are 17 hexadecimal digits behind a prefix.
func (s *Server) born(prefix string, tags map[string]string) meta {
	s.store.Serial++
	sum := sha256.Sum256([]byte(prefix + strconv.Itoa(s.store.Serial)))
	now := s.Clock.Now()
	if tags == nil {
		tags = map[string]string{}
	}
	return meta{ID: prefix + "-0" + hex.EncodeToString(sum[:8]), Order: s.store.Serial, Tags: tags, Created: now,
		Visible: now.Add(s.scale(s.delays.Visible)), Tagged: now.Add(s.scale(s.delays.TagVisible))}
}

// inOrder lists a kind in the order of creation.
func inOrder[T thing](all map[string]T) []T {
	return slices.SortedFunc(maps.Values(all), func(a, b T) int { return cmp.Compare(a.base().Order, b.base().Order) })
}

// known is a thing by ID that callers can see already.
func known[T thing](c *call, all map[string]T, id string) (found T, ok bool) {
	found, ok = all[id]
	return found, ok && !found.base().Visible.After(c.now)
}

func tagList(tags map[string]string) []any {
	return each(slices.Sorted(maps.Keys(tags)), func(key string) any { return object{"key": key, "value": tags[key]} })
}

// tagsFor are the tags that a request has for a kind of resource.
func tagsFor(in object, kind string) map[string]string {
	tags := map[string]string{}
	for _, spec := range items(in, "TagSpecification") {
		if text(spec, "ResourceType") == kind {
			for _, tag := range items(spec, "Tag") {
				tags[text(tag, "Key")] = text(tag, "Value")
			}
		}
	}
	return tags
}
