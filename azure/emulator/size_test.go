package emulator

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestSizes: ARM refuses tags, names and settings that are too large, and takes the largest that
// are not.
func TestSizes(t *testing.T) {
	w := onePool(t, instant)
	w.must(200, http.MethodPut, compute+"/snapshots/s", w.snapshotDoc("0"))
	snapshot := func(tags map[string]string) string {
		text, err := json.Marshal(tags)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Replace(w.snapshotDoc("0"), "{", `{"tags":`+string(text)+",", 1)
	}
	many := func(n int) map[string]string {
		tags := map[string]string{}
		for i := range n {
			tags[fmt.Sprint("t", i)] = "v"
		}
		return tags
	}
	for name, tt := range map[string]struct {
		tags map[string]string
		code string
	}{
		"50 tags": {tags: many(50)}, "51 tags": {many(51), "TooManyTags"},
		"a name of 512": {tags: map[string]string{strings.Repeat("n", 512): "v"}}, "a name of 513": {map[string]string{strings.Repeat("n", 513): "v"}, "InvalidTagNameLength"},
		"a value of 256": {tags: map[string]string{"t": strings.Repeat("ä", 256)}}, "a value of 257": {map[string]string{"t": strings.Repeat("v", 257)}, "InvalidTagValueLength"},
		"a slash in a name": {map[string]string{"a/b": "v"}, "InvalidTagNameCharacters"},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.code == "" {
				w.must(200, http.MethodPut, compute+"/snapshots/s", snapshot(tt.tags))
				return
			}
			w.refused(400, tt.code, "", http.MethodPut, compute+"/snapshots/s", snapshot(tt.tags))
		})
	}
	tags := poolPath + "/providers/Microsoft.Resources/tags/default"
	text, err := json.Marshal(map[string]any{"properties": map[string]any{"tags": many(50)}})
	if err != nil {
		t.Fatal(err)
	}
	w.must(200, http.MethodPut, tags, string(text))
	w.refused(400, "TooManyTags", "51", http.MethodPatch, tags, `{"operation":"Merge","properties":{"tags":{"one-more":"v"}}}`)
	w.must(200, http.MethodPatch, tags, `{"operation":"Merge","properties":{"tags":{"t0":"another"}}}`)

	w.must(200, http.MethodPut, compute+"/snapshots/"+strings.Repeat("s", 80), w.snapshotDoc("0"))
	for _, bad := range []string{compute + "/snapshots/" + strings.Repeat("s", 81), compute + "/snapshots/ends-in-", compute + "/virtualMachineScaleSets/" + strings.Repeat("s", 65)} {
		w.refused(400, "InvalidParameter", "validation rule", http.MethodPut, bad, w.snapshotDoc("0"))
	}
	script := func(n int) string {
		return `{"properties":{"publisher":"Microsoft.Azure.Extensions","type":"CustomScript","typeHandlerVersion":"2.1","protectedSettings":{"script":"` + strings.Repeat("x", n) + `"}}}`
	}
	w.refused(400, "InvalidParameter", "'script'", http.MethodPut, poolPath+"/extensions/cse", script(256<<10+1))
	w.must(201, http.MethodPut, poolPath+"/extensions/cse", script(256<<10))
}
