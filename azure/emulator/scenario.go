package emulator

import (
	"fmt"
	"strings"
)

// Scenario is what Seed puts into an empty server.
type Scenario struct {
	Subscription  string // "": 00000000-0000-0000-0000-000000000001
	Tenant        string // "": 11111111-1111-1111-1111-111111111111
	Location      string // "": westeurope
	ResourceGroup string // "": kamino-lab
	Pools         []Pool
}

// Pool is one scale set of a scenario. The zero value of every field but Name is useful.
type Pool struct {
	Name          string
	Count         int
	Size          string // "": Standard_D2s_v3, or Standard_D2ps_v5 for Arm64
	UpgradePolicy string // "": Manual
	// ImageID is a gallery version or definition; "": the generic image Publisher, Offer, SKU.
	ImageID                string
	Publisher, Offer, SKU  string
	CustomData             string      // base64; "": that of a bootstrap script
	UserData               string      // base64
	Extensions             []Extension // nil: vmssCSE and NAME-computeAksLinuxBilling
	NoExtensions           bool
	Generation             string // "": V2
	Architecture           string // "": x64
	SecurityType           string // "": Standard, and no securityProfile in the model
	DiskController         string // SCSI or NVMe; "": the model does not say
	DiskGB                 int    // of the OS disk; 0: 30
	DiskEncryptionSet      string // ARM ID; "": the platform's key
	Plan                   *Plan  // what was bought with the image
	Ephemeral              bool
	Windows                bool
	Spot                   bool
	Flexible               bool
	Tags                   map[string]string
	AutomaticOSUpgrade     bool
	AutomaticRepairs       bool
	Prefix                 string // of computer names; "": NAME
	Zones                  []string
	UserAssignedIdentities []string // resource IDs
	SSHKey                 string   // public key of the administrator; "": one that opens nothing
	PPSType                string   // kind of pre-provisioning that IMDS tells: None (or ""), Running, Savable, PreprovisionedOSDisk
}

// Plan is a purchase plan of the Marketplace.
type Plan struct{ Publisher, Product, Name string }

// Extension is one extension of a model.
type Extension struct {
	Name, Publisher, Type, Version string
	Settings                       map[string]any
	ProtectedSettings              map[string]any
}

// Defaults fills the empty fields of a scenario.
func (sc Scenario) Defaults() Scenario {
	for field, value := range map[*string]string{
		&sc.Subscription: "00000000-0000-0000-0000-000000000001", &sc.Tenant: defaultTenant,
		&sc.Location: "westeurope", &sc.ResourceGroup: "kamino-lab",
	} {
		if *field == "" {
			*field = value
		}
	}
	return sc
}

// PoolID is the ARM ID of a scale set of the scenario.
func (sc Scenario) PoolID(name string) string {
	sc = sc.Defaults()
	return fmt.Sprintf("/subscriptions/%s/resourceGroups/%s/providers/%s/%s", sc.Subscription, sc.ResourceGroup, scaleSets, name)
}

// Seed adds a subscription, a resource group and scale sets. Their instances are running
// and look like nodes which an ordinary bootstrap has made; with [Machines] set they are
// created, and Creating until that is done. It may be called more than once.
func (s *Server) Seed(sc Scenario) {
	s.start()
	sc = sc.Defaults()
	s.alter(func(t *tx) {
		subscription := "/subscriptions/" + sc.Subscription
		if t.get(subscription) == nil {
			t.put(&resource{id: subscription, kind: s.kinds["subscriptions"], created: t.now,
				doc: object{"id": subscription, "subscriptionId": sc.Subscription,
					"tenantId": sc.Tenant, "displayName": "Emulated", "state": "Enabled", "subscriptionPolicies": object{},
					"authorizationSource": "RoleBased"}})
		}
		group := subscription + "/resourceGroups/" + sc.ResourceGroup
		if t.get(group) == nil {
			t.put(&resource{id: group, kind: s.kinds["resourcegroups"], created: t.now, doc: object{"id": group, "name": sc.ResourceGroup,
				"type": "Microsoft.Resources/resourceGroups", "location": sc.Location, "tags": object{},
				"properties": object{"provisioningState": "Succeeded"}}})
		}
		for _, p := range sc.Pools {
			s.seedPool(t, sc, p)
		}
	})
}

func (s *Server) seedPool(t *tx, sc Scenario, p Pool) {
	p = p.defaults()
	id := sc.PoolID(p.Name)
	pool := t.put(&resource{id: id, kind: s.kinds[key(scaleSets)], created: t.now, etag: 1, custom: p.CustomData, user: p.UserData,
		secrets: map[string]object{}, doc: p.document(id, sc.Location),
		facts: object{"next": 0, "generation": p.Generation, "architecture": p.Architecture, "pps": p.PPSType}})
	set(pool.doc, stamp(t.now), "properties", "timeCreated")
	for _, e := range items(pool.doc, "properties", "virtualMachineProfile", "extensionProfile", "extensions") {
		pool.hideSettings(e)
	}
	t.remember(pool)
	im, err := t.resolveImage(pool)
	if err != nil {
		s.logger().Error("seed pool", "pool", p.Name, "error", err)
		return
	}
	var born []*resource
	for range p.Count {
		r := t.newInstance(pool, im)
		i := t.instance(r)
		disk := t.edit(i.OSDiskID)
		for path, content := range bootstrapped(i) {
			disk.files[path] = content
		}
		born = append(born, r)
		if s.Machines == nil {
			t.ready(r.id)
		}
	}
	if s.Machines != nil && len(born) > 0 {
		pool.setState("Updating")
		pd := settling(pool, computeFamily, 0)
		s.accompany(pd, pool, t, born)
		t.after = append(t.after, pd)
	}
}

// bootstrapped is what a node has on its disk once it joined the cluster.
func bootstrapped(i Instance) map[string]string {
	name := strings.ToLower(i.ComputerName)
	return map[string]string{
		"/etc/machine-id": strings.ReplaceAll(derived("machine-id", i.VMID), "-", "") + "\n",
		"/etc/hostname":   name + "\n",
		"/var/lib/kubelet/pki/kubelet-client-current.pem": "credential of system:node:" + name + " " + derived("kubelet", i.VMID) + "\n",
	}
}

func (p Pool) defaults() Pool {
	size := "Standard_D2s_v3"
	if p.Architecture == "Arm64" {
		size = "Standard_D2ps_v5"
	}
	for field, value := range map[*string]string{
		&p.Size: size, &p.UpgradePolicy: "Manual", &p.Publisher: "Generic", &p.Offer: "linux", &p.SKU: "node", &p.Generation: "V2",
		&p.Architecture: "x64", &p.Prefix: p.Name, &p.SSHKey: "ssh-rsa AAAA",
		&p.CustomData: "I2Nsb3VkLWNvbmZpZwpydW5jbWQ6IFsvb3B0L2Jvb3RzdHJhcC5zaF0K", // a cloud-config that runs /opt/bootstrap.sh
	} {
		if *field == "" {
			*field = value
		}
	}
	if p.Extensions == nil && !p.NoExtensions {
		p.Extensions = []Extension{
			{Name: "vmssCSE", Publisher: "Microsoft.Azure.Extensions", Type: "CustomScript", Version: "2.0",
				ProtectedSettings: map[string]any{"commandToExecute": "/opt/bootstrap.sh"}},
			{Name: p.Name + "-computeAksLinuxBilling", Publisher: "Microsoft.AKS", Type: "Compute.AKS-Engine.Linux.Billing",
				Version: "1.0"},
		}
	}
	return p
}
