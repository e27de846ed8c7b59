package aws_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"kamino.dev/kamino"
	"kamino.dev/kamino/aws"
	"kamino.dev/kamino/aws/emulator"
	"kamino.dev/kamino/aws/emulator/wire"
	azure "kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/providertest"
)

const key = "AKIATEST"

// setting is what a test wants of an emulated AWS. The zero value is an ordinary one.
type setting struct {
	latencies emulator.Latencies
	group     emulator.Group
	server    func(*emulator.Server)
	before    func(c *cloud, action string) // called before each of the provider's calls of EC2 arrives
}

// cloud is an emulated AWS with one group, and the provider that talks to it with AWS's own SDK.
type cloud struct {
	*aws.Provider
	*testing.T
	server *emulator.Server
	clock  *azure.VirtualClock
	walk   *wire.Walk // what its requests and replies are compared with
	// unsealed: the images that it builds have no receipt.
	unsealed bool
}

func begin(t *testing.T, s setting) *cloud {
	t.Helper()
	c := &cloud{T: t, clock: azure.NewVirtualClock(time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC))}
	c.server = &emulator.Server{Clock: c.clock, Latencies: s.latencies}
	if s.server != nil {
		s.server(c.server)
	}
	s.group.Name = "blue"
	if s.group.Count == 0 {
		s.group.Count, s.group.Min = 3, 1
	}
	c.server.Seed(s.group)
	checked, walk := wire.Checked(t, c.server)
	c.walk = walk
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.before != nil {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				panic(http.ErrAbortHandler)
			}
			form, _ := url.ParseQuery(string(body)) // a call of SSM has none
			s.before(c, form.Get("Action"))
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		checked.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { endpoint.Close(); c.server.Close() })
	c.Provider = connect(t, endpoint.URL, aws.Config{Clock: virtual{cloud: c.clock}})
	return c
}

// virtual is the cloud's time for the provider.
type virtual struct {
	kamino.WallClock
	cloud *azure.VirtualClock
}

func (v virtual) Now() time.Time { return v.cloud.Now() }

// connect makes a provider with credentials of nobody, and no way to find others.
func connect(t *testing.T, endpoint string, c aws.Config) *aws.Provider {
	t.Helper()
	for _, inherited := range os.Environ() {
		if name, _, _ := strings.Cut(inherited, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, "")
		}
	}
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": "not-a-secret", "AWS_REGION": "eu-central-1", "AWS_PROFILE": "",
		"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "AWS_EC2_METADATA_DISABLED": "true",
	} {
		t.Setenv(name, value)
	}
	c.Cluster = "lab"
	p, err := aws.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (c *cloud) donor() kamino.InstanceID {
	m := c.server.Machines()[0]
	return kamino.InstanceID("aws:///" + m.Zone + "/" + m.ID)
}

func (c *cloud) pool() kamino.Pool {
	c.Helper()
	id, err := c.PoolOf(c.Context(), c.donor())
	c.must(err)
	pool, err := c.Pool(c.Context(), id)
	c.must(err)
	return pool
}

func (c *cloud) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// eventually lets time pass until a condition holds.
func (c *cloud) eventually(what string, holds func() bool) {
	c.Helper()
	for range 200 {
		if holds() {
			return
		}
		c.clock.Advance(5 * time.Second)
	}
	c.Fatalf("never: %s", what)
}

// hold puts the donor into Standby.
func (c *cloud) hold() {
	c.Helper()
	c.eventually("the donor is held", func() bool {
		c.must(c.Hold(c.Context(), c.pool(), c.donor()))
		how, err := c.Holding(c.Context(), c.pool(), c.donor())
		c.must(err)
		return how == kamino.Held
	})
}

// world is the cloud as the contract wants it.
func (c *cloud) world() providertest.World {
	return providertest.World{Provider: c.Provider, Donor: c.donor(), Pass: c.clock.Advance, Replaces: true,
		Edit: func() { c.edit(&types.RequestLaunchTemplateData{SecurityGroupIds: []string{"sg-hardened"}}) }, Recipe: c.recipe}
}

// TestContract runs the contract against AWS's SDK in front and the emulator behind, by template
// version and by parameter, with a mixed policy, and without latencies.
func TestContract(t *testing.T) {
	for name, s := range map[string]setting{
		"default version":   {},
		"numbered":          {group: emulator.Group{Version: "1"}},
		"mixed":             {group: emulator.Group{Version: "1", Mixed: true}},
		"parameter":         {group: emulator.Group{Parameter: "/kamino/lab/blue/image"}},
		"no latencies":      {latencies: emulator.NoLatency()},
		"parameter at once": {latencies: emulator.NoLatency(), group: emulator.Group{Parameter: "/kamino/lab/blue/image"}},
	} {
		t.Run(name, func(t *testing.T) {
			providertest.Run(t, func(t *testing.T) providertest.World { return begin(t, s).world() })
		})
	}
}

// TestWithoutHold: what the factory does to a donor in service that is off.
func TestWithoutHold(t *testing.T) {
	c := begin(t, setting{})
	donor := c.donor()
	c.must(c.SetPower(c.Context(), donor, kamino.PowerOff))
	c.clock.Advance(time.Hour)
	if _, err := c.Instance(c.Context(), donor); err == nil || !strings.Contains(err.Error(), "not found") {
		t.Errorf("the donor is still there: %v", err)
	}
}
