package aws_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"kamino.dev/kamino/aws/emulator"
	"kamino.dev/kamino/aws/emulator/wire"
)

// TestModels: every request of the provider, and every reply that the emulator gives to one, is as
// in the service models of botocore. All other tests of this package compare as well; this one
// fails where the models are not compared with anything.
func TestModels(t *testing.T) {
	if _, err := wire.Models(); errors.Is(err, wire.ErrMissing) {
		t.Skip(err) // which names the package to install
	} else if err != nil {
		t.Fatal(err)
	}
	var compared []string
	for _, version := range []string{"", "1"} {
		c := begin(t, setting{group: emulator.Group{Version: version}})
		image := c.server.Machines()[0].Image
		if doubts, err := c.Preflight(t.Context()); err != nil || len(doubts) > 0 {
			t.Fatal(doubts, err)
		}
		c.must(c.story())
		c.must(c.canaryStory(image))
		if version == "" {
			compared = append(compared, c.walk.Actions()...)
			c = begin(t, setting{})
			c.must(c.Delete(t.Context(), c.pool(), c.build("2026.1.1")[0])) // no other image has its snapshot
		}
		compared = append(compared, c.walk.Actions()...)
	}
	_, actions := shipped(t, ordinary, canary, byNumber)
	for _, action := range actions {
		if action != "iam:PassRole" && !slices.Contains(compared, action) { // which is a right, and no call
			t.Errorf("no reply of %s was compared", action)
		}
	}
	compared = slices.Compact(slices.Sorted(slices.Values(compared)))
	fmt.Printf("WITNESS botocore: %d actions compared: %s\n", len(compared), strings.Join(compared, " "))
}
