package emulator

import (
	"maps"
	"slices"
	"strings"
)

// createTags overwrites tags of any resource. Keys with a slash are refused on an instance whose
// tags are shown through its metadata
// (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/work-with-tags-in-IMDS.html).
func createTags(c *call) (object, *apiError) {
	return c.changeTags(func(m *meta, key, value string, _ bool) { m.Tags[key] = value })
}

// deleteTags removes tags by key, or only those that have a value where one is given.
func deleteTags(c *call) (object, *apiError) {
	return c.changeTags(func(m *meta, key, value string, given bool) {
		if !given || m.Tags[key] == value {
			delete(m.Tags, key)
		}
	})
}

func (c *call) changeTags(change func(m *meta, key, value string, given bool)) (object, *apiError) {
	all := c.s.tagged()
	var targets []*meta
	for _, id := range texts(c.in, "ResourceId") {
		m, ok := all[id]
		if !ok || m.Visible.After(c.now) {
			return nil, refuse(missingCode(id), "The ID '%s' does not exist", id)
		}
		if i := c.s.store.Instances[id]; i != nil && c.action == "CreateTags" {
			for _, tag := range items(c.in, "Tag") {
				if err := metadataTag(i.Data, text(tag, "Key")); err != nil {
					return nil, err
				}
			}
		}
		targets = append(targets, m.meta)
	}
	for _, m := range targets {
		all := map[string]bool{}
		for key := range m.Tags {
			all[key] = true
		}
		for _, tag := range items(c.in, "Tag") {
			all[text(tag, "Key")] = true
		}
		maps.DeleteFunc(all, func(key string, _ bool) bool { return strings.HasPrefix(key, "aws:") }) // which do not count
		if err := tooMany(len(all)); err != nil && c.action == "CreateTags" {
			return nil, err
		}
	}
	for _, m := range targets {
		for _, tag := range items(c.in, "Tag") {
			value, given := tag["Value"].(string)
			change(m, text(tag, "Key"), value, given)
		}
	}
	return nil, nil
}

// missingCode is the code for an ID that does not exist, by its prefix.
func missingCode(id string) string {
	prefix, _, _ := strings.Cut(id, "-")
	code := map[string]string{"i": "InvalidInstanceID.NotFound", "snap": "InvalidSnapshot.NotFound", "ami": "InvalidAMIID.NotFound",
		"vol": "InvalidVolume.NotFound", "lt": "InvalidLaunchTemplateId.NotFound"}[prefix]
	if code == "" {
		return "InvalidID"
	}
	return code
}

// metadataTag refuses a key that instance metadata cannot show.
func metadataTag(data object, key string) *apiError {
	if text(data, "MetadataOptions", "InstanceMetadataTags") == "enabled" && strings.ContainsAny(key, "/ ") {
		return refuse("InvalidParameterValue", "'%s' is not a valid tag key for instance metadata. Tag keys must match pattern ([0-9a-zA-Z\\-_+=,.@:]{1,255}), and must not be a reserved name ('.', '..', '_index')", key)
	}
	return nil
}

// tagEntry is a tag in the list of DescribeTags.
type tagEntry struct{ id, kind, key, value string }

func describeTags(c *call) (object, *apiError) {
	all := c.s.tagged()
	var found []tagEntry
	for _, id := range slices.Sorted(maps.Keys(all)) {
		m := all[id]
		for _, key := range slices.Sorted(maps.Keys(m.Tags)) {
			e := tagEntry{id, m.kind, key, m.Tags[key]}
			if m.Tagged.After(c.now) {
				continue
			}
			ok, err := e.passes(c)
			if err != nil {
				return nil, err
			}
			if ok {
				found = append(found, e)
			}
		}
	}
	return paged(c, found, "tagSet", func(e tagEntry) any {
		return object{"resourceId": e.id, "resourceType": e.kind, "key": e.key, "value": e.value}
	})
}

func (e tagEntry) passes(c *call) (bool, *apiError) {
	facts := map[string]string{"resource-id": e.id, "resource-type": e.kind, "key": e.key, "value": e.value}
	for _, f := range items(c.in, "Filter") {
		value, ok := facts[text(f, "Name")]
		if !ok {
			return false, refuse("InvalidParameterValue", "The filter '%s' is invalid", text(f, "Name"))
		}
		if !anyLike(texts(f, "Value"), []string{value}) {
			return false, nil
		}
	}
	return true, nil
}
