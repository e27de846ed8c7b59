package charts

import (
	"strings"
	"testing"
)

// TestBase: what is rendered has the images. The lab's tests of the charts check that Helm renders
// the same.
func TestBase(t *testing.T) {
	for name, tt := range map[string]struct {
		images []string
		want   string
	}{
		"no image":   {nil, `images: ""`},
		"two images": {[]string{"a@sha256:1", "b@sha256:2"}, "images: |-\n    a@sha256:1\n    b@sha256:2"},
	} {
		t.Run(name, func(t *testing.T) {
			all, err := Base(tt.images)
			text := strings.Join(all, "---\n")
			if err != nil || len(all) < 15 || !strings.Contains(text, tt.want) || strings.Contains(text, "{{") {
				t.Errorf("%v: %d documents:\n%s", err, len(all), text)
			}
		})
	}
}

// TestKept: where the chart is removed, the namespace stays with the ledgers, and with it the
// policies that keep others from naming an image that may seal disks, or making a pod of one.
func TestKept(t *testing.T) {
	all, err := Base(nil)
	if err != nil {
		t.Fatal(err)
	}
	kept := 0
	for _, document := range all {
		for _, name := range []string{"kamino-seal-pods", "kamino-own"} {
			if strings.Contains(document, "kind: ValidatingAdmissionPolicy") && strings.Contains(document, "\n  name: "+name+"\n") {
				if kept++; !strings.Contains(document, "helm.sh/resource-policy: keep") {
					t.Errorf("it goes with the chart:\n%.200s", document)
				}
			}
		}
	}
	if kept != 4 {
		t.Errorf("%d policies and bindings", kept)
	}
}
