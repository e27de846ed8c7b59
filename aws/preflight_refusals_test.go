package aws_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"kamino.dev/kamino"
	"kamino.dev/kamino/aws/emulator"
)

// disk is a template's mapping of the root device.
func disk(ebs map[string]any) map[string]any {
	return map[string]any{"BlockDeviceMapping": []any{map[string]any{"DeviceName": "/dev/xvda", "Ebs": ebs}}}
}

// mapped is what the image of a version says of its root device.
func (c *cloud) mapped() string {
	c.Helper()
	for _, e := range c.server.Requests(0) {
		if e.Action == "RegisterImage" && e.Status == 200 {
			return fmt.Sprint(e.Parameters["BlockDeviceMapping"])
		}
	}
	c.Fatal("no image was registered")
	return ""
}

// TestRootPerformance: the image has the type and the performance of the donor's root. EC2 refuses
// io1 and io2 without, and makes a gp3 one of 3000 IOPS where nothing is said.
func TestRootPerformance(t *testing.T) {
	for _, tt := range []struct {
		ebs  map[string]any
		want []string
	}{
		{map[string]any{"VolumeType": "io1", "Iops": "4000"}, []string{"VolumeType:io1", "Iops:4000"}},
		{map[string]any{"VolumeType": "io2", "Iops": "6000"}, []string{"VolumeType:io2", "Iops:6000"}},
		{map[string]any{"VolumeType": "gp3", "Iops": "6000", "Throughput": "500"}, []string{"VolumeType:gp3", "Iops:6000", "Throughput:500"}},
		{map[string]any{"VolumeType": "gp2"}, []string{"VolumeType:gp2"}},
	} {
		t.Run(tt.want[0], func(t *testing.T) {
			c := begin(t, setting{group: emulator.Group{Data: disk(tt.ebs)}})
			c.build("2026.1.1")
			for _, want := range tt.want {
				if got := c.mapped(); !strings.Contains(got, want) {
					t.Errorf("the image has %s, want %s", got, want)
				}
			}
		})
	}
}

// TestSecondVolume: a donor whose image brings a second volume is refused, unless the template maps
// that device as well as the image does: an image is made of the root alone.
func TestSecondVolume(t *testing.T) {
	second := map[string]any{"DeviceName": "/dev/xvdb", "Ebs": map[string]any{"VolumeSize": "50"}}
	for _, tt := range []struct {
		name  string
		group emulator.Group
		want  string
	}{
		{"root alone", emulator.Group{}, ""},
		{"of the template", emulator.Group{Data: map[string]any{"BlockDeviceMapping": []any{map[string]any{"DeviceName": "/dev/xvda", "Ebs": map[string]any{"VolumeSize": "20"}}, second}}}, ""},
		{"of the image", emulator.Group{Second: "/dev/xvdb"}, "second-volume"},
		{"of the image, empty in the template", emulator.Group{Second: "/dev/xvdb", Data: map[string]any{"BlockDeviceMapping": []any{
			map[string]any{"DeviceName": "/dev/xvda", "Ebs": map[string]any{"VolumeSize": "20"}}, second}}}, "second-volume"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := begin(t, setting{group: tt.group})
			refusals, doubts := c.fits()
			if got := codes(refusals); got != tt.want || len(doubts) > 0 {
				t.Errorf("refused as %q, doubts %v, want %q", got, doubts, tt.want)
			}
		})
	}
	t.Run("attached by somebody", func(t *testing.T) {
		c := begin(t, setting{})
		c.server.Attach(c.server.Machines()[0].ID, "/dev/xvdaa")
		if refusals, _ := c.fits(); len(refusals) > 0 {
			t.Errorf("refused: %v", refusals)
		}
	})
}

// fits compares the donor with its group.
func (c *cloud) fits() ([]kamino.Refusal, []kamino.Warning) {
	c.Helper()
	in, err := c.Instance(c.Context(), c.donor())
	c.must(err)
	refusals, doubts, err := c.Fit(c.Context(), c.pool(), in, nil)
	c.must(err)
	return refusals, doubts
}

// TestStopProtection: a donor that may not be stopped is refused before it is drained.
func TestStopProtection(t *testing.T) {
	c := begin(t, setting{group: emulator.Group{Data: map[string]any{"DisableApiStop": "true"}}})
	if refusals, _ := c.fits(); codes(refusals) != "stop-protection" {
		t.Errorf("refused as %q", codes(refusals))
	}
}

// TestLongDescription: EC2 takes 255 characters, and a group's name alone may have as many.
func TestLongDescription(t *testing.T) {
	c := begin(t, setting{})
	long := strings.Repeat("n", 255)
	c.server.Seed(emulator.Group{Name: long, Count: 2, Min: 1})
	pool, err := c.Pool(t.Context(), kamino.PoolID("aws:eu-central-1/"+long))
	c.must(err)
	v := c.build("2026.1.1")
	a := kamino.Artifact{Kind: kamino.KindVersion, Name: "2026.11.27", Source: v[0].Source, Tags: map[string]string{kamino.TagRun: "r"}}
	c.must(c.Create(t.Context(), pool, a))
	a.Kind, a.Name, a.Source = kamino.KindSnapshot, strings.Repeat("s", 250)+"äöü", c.server.Machines()[1].Volume
	c.must(c.Create(t.Context(), pool, a))
}

// TestSignature: SSM says of a wrong key and of a wrong clock what EC2 says with another code.
func TestSignature(t *testing.T) {
	for _, code := range []string{"InvalidSignatureException", "SignatureDoesNotMatch", "IncompleteSignatureException"} {
		c := begin(t, setting{group: emulator.Group{Parameter: "/kamino/lab/blue/image"}})
		c.server.AddFault(emulator.Fault{Action: "ssm:GetParameters", Kind: emulator.Reply, Status: 400, Code: code})
		_, err := c.Pool(t.Context(), "aws:eu-central-1/blue")
		hint := kamino.Hint(err)
		if !errors.Is(err, kamino.ErrForbidden) || !strings.Contains(fmt.Sprint(hint), "clock") {
			t.Errorf("%s: %v, hint %q", code, err, hint)
		}
	}
}

// TestWeights: a group whose policy has weights counts units, and AWS refuses to put the donor into
// Standby. The donor is refused before it is drained.
func TestWeights(t *testing.T) {
	for weight, want := range map[string]string{"1": "", "4": "weights"} {
		c := begin(t, setting{group: emulator.Group{Count: 8, Min: 6, Max: 8, Mixed: true, Override: map[string]any{"WeightedCapacity": weight}}})
		if refusals, _ := c.fits(); codes(refusals) != want {
			t.Errorf("weight %s: refused as %q, want %q", weight, codes(refusals), want)
		}
		if err := c.Hold(t.Context(), c.pool(), c.donor()); (err != nil) != (want != "") {
			t.Errorf("weight %s: hold: %v", weight, err)
		}
	}
}
