package emulator

import (
	"net/http"
	"regexp"
	"strings"
	"unicode/utf8"
)

// What ARM refuses by size, by
// https://learn.microsoft.com/azure/azure-resource-manager/management/tag-resources#limitations,
// https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules and
// https://learn.microsoft.com/azure/virtual-machines/extensions/custom-script-linux. The codes and
// texts of the refusals are assumed, unverified on real Azure.
const (
	mostTags     = 50
	mostTagName  = 512
	mostTagValue = 256
	mostScript   = 256 << 10 // of the custom script extension
)

// names are those that a new resource of a kind may have. Galleries, definitions and versions check
// theirs themselves.
var names = map[string]*regexp.Regexp{
	scaleSets: regexp.MustCompile(`^[A-Za-z0-9]([\w.-]{0,62}\w)?$`),
	snapshots: regexp.MustCompile(`^[A-Za-z0-9]([\w.-]{0,78}\w)?$`),
	disks:     regexp.MustCompile(`^[A-Za-z0-9]([\w.-]{0,78}\w)?$`),
}

// sized refuses a write that is too large.
func (c *call) sized() *apiError {
	if c.r.Method != http.MethodPut && c.r.Method != http.MethodPatch {
		return nil
	}
	if valid := names[c.target.kind.name]; valid != nil && c.r.Method == http.MethodPut && c.target.tail == "" &&
		c.t.get(c.target.id) == nil && !valid.MatchString(nameOf(c.target.id)) {
		return refuse(http.StatusBadRequest, "InvalidParameter", "The entity name '%s' is invalid according to its validation rule: %s.",
			nameOf(c.target.id), valid)
	}
	if err := checkTags(part(c.body, "tags")); err != nil {
		return err
	}
	list := items(c.body, strings.Split(profileKeys, "/")...)
	if c.target.kind.name == extensions {
		list = append(list, c.body)
	}
	for _, e := range list {
		for _, where := range []string{"settings", "protectedSettings"} {
			if size := len(text(e, "properties", where, "script")); size > mostScript {
				return refuse(http.StatusBadRequest, "InvalidParameter",
					"The 'script' in %s of the extension has %d characters; the limit is %d.", where, size, mostScript)
			}
		}
	}
	return nil
}

// checkTags refuses tags that no resource may have.
func checkTags(tags object) *apiError {
	count := 0
	for name, value := range tags {
		if value == nil { // it takes the tag off
			continue
		}
		count++
		said, _ := value.(string)
		switch {
		case name == "" || strings.ContainsAny(name, `<>%&\?/`):
			return refuse(http.StatusBadRequest, "InvalidTagNameCharacters",
				`The tag name '%s' is empty or has reserved characters '<,>,%%,&,\,?,/'.`, name)
		case utf8.RuneCountInString(name) > mostTagName:
			return refuse(http.StatusBadRequest, "InvalidTagNameLength", "The tag name '%.40s…' has %d characters; the limit is %d.", name,
				utf8.RuneCountInString(name), mostTagName)
		case utf8.RuneCountInString(said) > mostTagValue:
			return refuse(http.StatusBadRequest, "InvalidTagValueLength", "The value of tag '%s' has %d characters; the limit is %d.", name,
				utf8.RuneCountInString(said), mostTagValue)
		}
	}
	if count > mostTags {
		return refuse(http.StatusBadRequest, "TooManyTags", "The resource would have %d tags; the limit is %d.", count, mostTags)
	}
	return nil
}
