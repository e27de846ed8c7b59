package kamino_test

import (
	"testing"

	"kamino.dev/kamino"
)

func TestInstanceByHand(t *testing.T) {
	for id, want := range map[kamino.InstanceID]string{
		"azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/v/virtualMachines/3": "az vmss start --resource-group g --name v --instance-ids 3",
		"azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/v_3":                         "az vm start --ids /subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/v_3",
		"aws:///eu-central-1a/i-0123456789abcdef0":                                                                          "aws ec2 start-instances --instance-ids i-0123456789abcdef0",
	} {
		if got := id.Start(); got != want {
			t.Errorf("%s: %s, want %s", id, got, want)
		}
	}
	if got, want := kamino.InstanceID("aws:///eu-central-1a/i-01").Release("blue"), "aws autoscaling exit-standby --auto-scaling-group-name blue --instance-ids i-01"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
