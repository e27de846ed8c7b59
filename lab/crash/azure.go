package crash

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/azure"
	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/internal/worlds"
)

// cloud is what a world's cloud does its own way. What is alike is in World; how a cloud's machines
// behave is in nodes.Cloud.
type cloud interface {
	Close()
	// meaning tells what a call means, pass brings it to the cloud, and learn takes from its
	// answer what is known from then on. refusal is the answer of a fault that keeps the call
	// from the cloud, nil for others.
	meaning(c *Call, r *http.Request)
	pass(c *Call, r *http.Request, kind worlds.Fault) *reply
	learn(p *Process, c *Call, answer *reply)
	refusal(k worlds.Fault, c *Call) *reply

	provider(p *Process) (kamino.Provider, error)
	command() (args, environment []string) // of a real process

	readCloud() // into the state
	poolOf(instance string) string
	inService(emulator.Instance) bool
	vmOf(id string) string
	lines() ([]string, error)
	makeModels(n int) error
	makeHistory() error
	boots(version string) // the pool's next machine, from then on

	startMachine(*machine)
	deleteMachine(*machine)
	replaceMachine(*machine)
	swapDisk(*machine) // of one that is off
	SetImage()
	Resize(by int)
	Size() int
	Exclude()
	Refuse()
	Own()
	Revoke()
	Lock()
	Deny()
	DeleteSnapshot()
	Script(node string)
	allowed() // mends what they did who have more rights than Kamino
	reconcile() emulator.CAPZWork
}

// onAzure is a world on Azure.
type onAzure struct {
	*World
	cloud    *emulator.Server
	replaced map[string]string // VM IDs of instances that were replaced
}

const azureScheme = "azure://"

// isMachine says whether an ID is of an instance.
func isMachine(id string) bool {
	return strings.HasPrefix(id, awsScheme) || strings.Contains(strings.ToLower(id), "/virtualmachines/")
}

// latencies make every long operation last for one to three polls.
func latencies() emulator.Latencies {
	return emulator.Latencies{
		Stop: 9 * time.Second, Cut: 4 * time.Second, Start: 4 * time.Second, CreateInstance: 9 * time.Second,
		DeleteInstance: 9 * time.Second,
		Snapshot:       4 * time.Second, DeleteSnapshot: 4 * time.Second, Gallery: 4 * time.Second, Definition: 4 * time.Second,
		Version: 9 * time.Second, UpdateVersion: 4 * time.Second, DeleteVersion: 4 * time.Second, UpdateScaleSet: 4 * time.Second,
	}
}

// onAzure makes Azure a world's cloud.
func (w *World) onAzure() {
	pool := emulator.Pool{Name: poolName, Count: 2}
	if w.shape.Pool != nil {
		w.shape.Pool(&pool)
	}
	if w.shape.Owned {
		pool.Tags = emulator.CAPZTags("blue")
	}
	w.scenario.Pools = []emulator.Pool{pool}
	w.pool = strings.ToLower(w.scenario.PoolID(poolName))
	server := &emulator.Server{Clock: w.clock.virtual, Latencies: latencies(), BaseURL: w.station.cloudURL, PollInterval: time.Second,
		Identities: []emulator.Identity{{ClientID: clientID, Secret: clientSecret, Tenant: w.scenario.Tenant, Roles: roles(w.scenario)}}}
	if w.shape.Configure != nil {
		w.shape.Configure(server)
	}
	server.Seed(w.scenario)
	w.cloud, w.fleet = &onAzure{World: w, cloud: server, replaced: map[string]string{}}, server
}

func (w *onAzure) Close() { w.cloud.Close() }

// roles are the shipped ones at the resource group, and the two reads of the
// subscription that make a run better.
func roles(sc emulator.Scenario) []emulator.Role {
	subscription := "/subscriptions/" + sc.Subscription
	return []emulator.Role{
		{Scope: subscription + "/resourceGroups/" + sc.ResourceGroup, Actions: slices.Concat(azure.Actions(), azure.CanaryActions())},
		{Scope: subscription, Actions: []string{"Microsoft.Compute/skus/read", "Microsoft.Compute/locations/*/read"}},
	}
}

func (w *onAzure) provider(p *Process) (kamino.Provider, error) {
	return azure.New(azure.Config{
		Transport: guard{p, w.station.toCloud}, UserAgent: "kamino",
		Getenv: func(name string) string { return w.station.environment[name] },
		// The command line takes both from flags; without them it asks for no permissions.
		Subscription: w.scenario.Subscription, ResourceGroup: w.scenario.ResourceGroup,
	})
}

func (w *onAzure) command() (args, environment []string) {
	return []string{"--provider", "azure"}, []string{"AZURE_SUBSCRIPTION_ID=" + w.scenario.Subscription, "AZURE_RESOURCE_GROUP=" +
		w.scenario.ResourceGroup}
}

func (w *onAzure) refusal(k worlds.Fault, c *Call) *reply { return lie(k, c.Side) }

func (w *onAzure) inService(emulator.Instance) bool { return false }

// vmOf is the identity of a machine, which changes when somebody replaces it.
func (w *onAzure) vmOf(id string) string {
	if now, ok := w.replaced[id]; ok {
		return now
	}
	return id
}

// pass brings a call to Azure.
func (w *onAzure) pass(c *Call, r *http.Request, kind worlds.Fault) *reply {
	if kind == worlds.Vanished {
		w.vanish()
	}
	if f := cloudFault(kind, c); f != nil {
		id := w.cloud.AddFault(*f)
		defer w.cloud.RemoveFault(id)
	}
	answer := newReply()
	inner := r.Clone(w.ctx)
	inner.Body = body(c.body)
	w.cloud.ServeHTTP(answer, inner)
	for old, now := range w.replaced {
		if bytes.Contains(answer.body.Bytes(), []byte(old)) {
			text := bytes.ReplaceAll(answer.body.Bytes(), []byte(old), []byte(now))
			answer.body.Reset()
			answer.body.Write(text)
		}
	}
	return answer
}

// learn notes which VM a process has seen behind an instance.
func (w *onAzure) learn(p *Process, c *Call, answer *reply) {
	c.Long = answer.header.Get("Azure-AsyncOperation") != ""
	lower := strings.ToLower(c.Path)
	if c.Method != http.MethodGet || !strings.Contains(lower, "/virtualmachines/") || answer.status != http.StatusOK {
		return
	}
	if vm := vmIDIn(answer.body.Bytes()); vm != "" {
		p.seenVM[machineID(c.Path)] = vm
	}
}
