package azure

import "testing"

// TestLook: within a look the scale sets of a resource group are listed once; without one, each
// time, as runs need them.
func TestLook(t *testing.T) {
	cloud := &anyone{}
	p := cloud.provider()
	c, err := p.of("one")
	if err != nil {
		t.Fatal(err)
	}
	at := func(group string) place {
		return place{clients: c, scaleSet: scaleSet{subscription: "one", group: group}}
	}
	look := NewLook()
	for name, tt := range map[string]struct {
		look   *Look
		groups []string
		want   int
	}{
		"none":           {nil, []string{"a", "a"}, 2},
		"a look":         {look, []string{"a", "A", "a", "b", "b"}, 2},
		"one of its own": {NewLook(), []string{"a"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			cloud.asked = nil
			ctx := t.Context()
			if tt.look != nil {
				ctx = tt.look.Context(ctx)
			}
			for _, g := range tt.groups {
				if _, err := p.neighbours(ctx, at(g)); err != nil {
					t.Fatal(err)
				}
			}
			if len(cloud.asked) != tt.want {
				t.Errorf("%s: %q were asked for, want %d", name, cloud.asked, tt.want)
			}
		})
	}
}
