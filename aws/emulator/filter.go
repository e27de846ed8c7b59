package emulator

import (
	"encoding/base64"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// pick is what a Describe call names by IDs or filters. Values of a filter are joined by or,
// filters by and; * and ? are wild
// (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/Using_Filtering.html).
func pick[T thing](c *call, all map[string]T, ids []string, missing func(id string) *apiError) ([]T, *apiError) {
	if len(ids) > 0 {
		named := map[string]T{}
		for _, id := range ids {
			t, ok := known(c, all, id)
			if !ok {
				return nil, missing(id)
			}
			named[id] = t
		}
		all = named
	}
	var found []T
	for _, t := range inOrder(all) {
		if t.base().Visible.After(c.now) {
			continue
		}
		ok, err := c.passes(t)
		if err != nil {
			return nil, err
		}
		if ok {
			found = append(found, t)
		}
	}
	return found, nil
}

// passes says whether a thing meets every filter of the call.
func (c *call) passes(t thing) (bool, *apiError) {
	for _, f := range items(c.in, "Filter") {
		name, wanted := text(f, "Name"), texts(f, "Value")
		values, ok := tagFacts(t.base(), name)
		if ok && t.base().Tagged.After(c.now) {
			return false, nil
		}
		if !ok {
			if values, ok = t.fact(name); !ok {
				return false, refuse("InvalidParameterValue", "The filter '%s' is invalid", name)
			}
		}
		if !anyLike(wanted, values) {
			return false, nil
		}
	}
	return true, nil
}

// tagFacts are the values of the filters by tag.
func tagFacts(m *meta, filter string) (values []string, ok bool) {
	if key, ok := strings.CutPrefix(filter, "tag:"); ok {
		if value, has := m.Tags[key]; has {
			values = append(values, value)
		}
		return values, true
	}
	switch filter {
	case "tag-key":
		return slices.Collect(maps.Keys(m.Tags)), true
	case "tag-value":
		return slices.Collect(maps.Values(m.Tags)), true
	}
	return nil, false
}

// anyLike says whether one of the values fits one of the patterns.
func anyLike(patterns, values []string) bool {
	return slices.ContainsFunc(values, func(v string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool { return like(p, v) })
	})
}

// wild are the characters of a pattern that do not stand for themselves.
const wild = `*?\`

// plain makes a pattern one for path.Match, to which a slash is a character as any other.
var plain = strings.NewReplacer("/", "\x01", "[", "\\[", "]", "\\]")

// like compares with * and ? as wild.
func like(pattern, value string) bool {
	if !strings.ContainsAny(pattern, wild) {
		return pattern == value
	}
	ok, err := path.Match(plain.Replace(pattern), strings.ReplaceAll(value, "/", "\x01"))
	return err == nil && ok
}

// page is the part of a list that a call asks for, and the token of the next.
func page[T any](list []T, size int, token string) ([]T, string, *apiError) {
	from := 0
	if token != "" {
		raw, err := base64.StdEncoding.DecodeString(token)
		from, _ = strconv.Atoi(string(raw))
		if err != nil || from <= 0 || from > len(list) {
			return nil, "", refuse("InvalidNextToken", "The token '%s' is invalid", token)
		}
	}
	if size <= 0 || from+size >= len(list) {
		return list[from:], "", nil
	}
	return list[from : from+size], base64.StdEncoding.EncodeToString([]byte(strconv.Itoa(from + size))), nil
}

// describe is the reply of a Describe call of EC2: what was picked, page by page. Without
// MaxResults a page has Server.PageSize of them.
func describe[T thing](c *call, all map[string]T, ids []string, missing func(string) *apiError, set string,
	show func(T) any) (object, *apiError) {
	found, err := pick(c, all, ids, missing)
	if err != nil {
		return nil, err
	}
	return paged(c, found, set, show)
}

func paged[T any](c *call, found []T, set string, show func(T) any) (object, *apiError) {
	size, ok := number(c.in, "MaxResults")
	if !ok {
		size = c.s.pageSize()
	}
	found, next, err := page(found, size, text(c.in, "NextToken"))
	if err != nil {
		return nil, err
	}
	return object{set: each(found, show), "nextToken": next}, nil
}

func (s *Server) pageSize() int {
	if s.PageSize > 0 {
		return s.PageSize
	}
	return 1000
}
