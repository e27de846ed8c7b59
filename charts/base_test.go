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
