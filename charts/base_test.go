package charts

import (
	"strings"
	"testing"
)

// TestBase: what is rendered has the images, and the roles of whom a former version may have left
// runs. That it is what Helm renders, the lab's tests of the charts say.
func TestBase(t *testing.T) {
	for name, tt := range map[string]struct {
		values BaseValues
		want   string
		roles  bool
	}{
		"no image":   {BaseValues{Migrate: true}, `images: ""`, true},
		"two images": {BaseValues{SealImages: []string{"a@sha256:1", "b@sha256:2"}}, "images: |-\n    a@sha256:1\n    b@sha256:2", false},
	} {
		t.Run(name, func(t *testing.T) {
			all, err := Base(tt.values)
			text := strings.Join(all, "---\n")
			if err != nil || len(all) < 15 || !strings.Contains(text, tt.want) || strings.Contains(text, "name: kamino-migrate") != tt.roles || strings.Contains(text, "{{") {
				t.Errorf("%v: %d documents:\n%s", err, len(all), text)
			}
		})
	}
}

// TestKept: where the chart is removed, the namespace stays with the ledgers, and with it the
// policies that keep others from naming an image that may seal disks, or making a pod of one.
func TestKept(t *testing.T) {
	all, err := Base(BaseValues{})
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
