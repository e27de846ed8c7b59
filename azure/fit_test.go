package azure

import (
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"kamino.dev/kamino"
)

// TestFitPool: what new instances of a model could not boot is refused, and what is not
// known to differ is not.
func TestFitPool(t *testing.T) {
	both, v2 := []string{"V1", "V2"}, []string{"V2"}
	offers := region{sizes: map[string]size{
		"standard_d2s_v3":   {nil, both, "x64"}, // tells no controllers, as sizes of its age
		"standard_d2s_v5":   {[]string{"SCSI"}, both, "x64"},
		"standard_d4s_v5":   {[]string{"SCSI"}, both, "x64"},
		"standard_e4bds_v5": {[]string{"SCSI", "NVMe"}, both, "x64"},
		"standard_e8bds_v5": {[]string{"SCSI", "NVMe"}, both, "x64"},
		"standard_d2ds_v6":  {[]string{"NVMe"}, v2, "x64"},
	}}
	for _, tt := range []struct {
		name              string
		model, controller string // the model's size and diskControllerType
		donor             kamino.Instance
		want              string // text of the one refusal
	}{
		{name: "old size, model with NVMe only", model: "Standard_D2ds_v6", donor: kamino.Instance{Size: "Standard_D2s_v3", Machine: kamino.Machine{Generation: "V2"}}, want: "disk controllers NVMe"},
		{name: "NVMe only, model with an old size", model: "Standard_D2s_v3", donor: kamino.Instance{Size: "Standard_D2ds_v6", Machine: kamino.Machine{Generation: "V2"}}, want: "disk controllers SCSI"},
		{name: "no controller shown, model says NVMe", model: "Standard_E4bds_v5", controller: "NVMe",
			donor: kamino.Instance{Size: "Standard_E4bds_v5", Machine: kamino.Machine{Generation: "V2"}}, want: "attached by SCSI"},
		{name: "no controller shown, model says SCSI", model: "Standard_E4bds_v5", controller: "SCSI", donor: kamino.Instance{Size: "Standard_E4bds_v5", Machine: kamino.Machine{Generation: "V2"}}},
		{name: "no controller shown, size with NVMe only", model: "Standard_D2ds_v6", controller: "NVMe", donor: kamino.Instance{Size: "Standard_D2ds_v6", Machine: kamino.Machine{Generation: "V2"}}},
		{name: "generation 1, model with generation 2 only", model: "Standard_D2ds_v6",
			donor: kamino.Instance{Size: "Standard_E4bds_v5", Machine: kamino.Machine{Generation: "V1", Controller: "NVMe"}}, want: "generations V2"},
		{name: "generation not shown", model: "Standard_D4s_v5", donor: kamino.Instance{Size: "Standard_D2s_v5"}},
		{name: "controller in other letters", model: "Standard_E4bds_v5", donor: kamino.Instance{Size: "Standard_E8bds_v5", Machine: kamino.Machine{Generation: "V2", Controller: "NVME"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			model := saved{SKU: &armcompute.SKU{Name: to.Ptr(tt.model)}}
			if tt.controller != "" {
				model.Controller = to.Ptr(tt.controller)
			}
			tt.donor.Architecture, tt.donor.SecurityType = "x64", "Standard"
			tt.donor.Controller = offers.attaches(tt.donor)
			r := fitPool(model, tt.donor, offers)
			if tt.want == "" && len(r) > 0 || tt.want != "" && (len(r) != 1 || !strings.Contains(r[0].String(), tt.want)) {
				t.Errorf("refused for %v, want %q", r, tt.want)
			}
		})
	}
}

// TestSizeNames: what names tell, where the region may not be asked.
func TestSizeNames(t *testing.T) {
	for name, want := range map[string]struct{ controller, architecture string }{
		"Standard_D2s_v3":                {"SCSI", "x64"},
		"Standard_D2ps_v5":               {"SCSI", "Arm64"},
		"Standard_D2pds_v6":              {"NVMe", "Arm64"},
		"Standard_D2ds_v6":               {"NVMe", "x64"},
		"Standard_NC40ads_H100_v5":       {"SCSI", "x64"},
		"Standard_E96ias_v4":             {"SCSI", "x64"},
		"Standard_B2pts_v2":              {"SCSI", "Arm64"},
		"Standard_E8-4ds_v6":             {"NVMe", "x64"},
		"Standard_D2_v3_Promo":           {"SCSI", "x64"},
		"Standard_L8s_v3":                {"SCSI", "x64"},
		"Standard_DS2_v2":                {"SCSI", "x64"},
		"Standard_DS2":                   {"SCSI", "x64"},
		"Standard_HB120-16rs":            {"SCSI", "x64"},
		"Standard_ND128isr_GB300_v6":     {"NVMe", "Arm64"},
		"Standard_ND128isr_NDR_GB200_v6": {"NVMe", "Arm64"},
		"something else":                 {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := region{unknown: true}.size(name)
			if got.architecture != want.architecture || only(got.controllers) != want.controller {
				t.Errorf("controllers %v, architecture %q, want %+v", got.controllers, got.architecture, want)
			}
		})
	}
}
