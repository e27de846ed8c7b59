package aws

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// TestDiffers: of several fields always the same one is named, so that the error of a run and that
// of the next can be told to be the same.
func TestDiffers(t *testing.T) {
	one, two := "one", "two"
	a, b := types.ResponseLaunchTemplateData{ImageId: &one}, types.ResponseLaunchTemplateData{ImageId: &two}
	if field := differs(a, b); field != "" {
		t.Errorf("differs in %q besides the image", field)
	}
	b.KernelId, b.KeyName, b.UserData = &two, &two, &two
	for range 100 {
		if field := differs(a, b); field != "KernelId" {
			t.Fatalf("differs in %q, want KernelId", field)
		}
	}
}
