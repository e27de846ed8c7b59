package azure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"kamino.dev/kamino"
)

// crowd is a resource group with many scale sets, of which a client reads some only before its time
// is over.
type crowd struct {
	anyone
	sets  int
	reads int // of instances, until the time is over
	using int // the number of the set that has an instance of the version; -1: none
	asks  int // reads of instances in all
}

const crowdVersion = "/subscriptions/one/resourceGroups/rg/providers/Microsoft.Compute/galleries/g/images/d/versions/2026.1.1"

func (c *crowd) Do(req *http.Request) (*http.Response, error) {
	says := `{"value":[`
	switch path := req.URL.Path; {
	case strings.HasSuffix(path, "/virtualMachineScaleSets"):
		for i := range c.sets {
			says += fmt.Sprintf(`%s{"name":"set%d","id":"/subscriptions/one/resourceGroups/rg/providers/Microsoft.Compute/virtualMachineScaleSets/set%d","properties":{"virtualMachineProfile":{"storageProfile":{"imageReference":{"id":"/other"}}}}}`,
				strings.Repeat(",", min(i, 1)), i, i)
		}
	case strings.HasSuffix(path, "/virtualMachines"):
		if c.asks++; c.reads == 0 {
			return nil, context.DeadlineExceeded
		}
		c.reads--
		if strings.Contains(path, fmt.Sprintf("/set%d/", c.using)) {
			says += `{"properties":{"storageProfile":{"imageReference":{"exactVersion":"2026.1.1","id":"` + crowdVersion + `"}}}}`
		}
	}
	return &http.Response{StatusCode: http.StatusOK, Request: req, Header: http.Header{}, Body: io.NopCloser(bytes.NewBufferString(says + "]}"))}, nil
}

// TestManyScaleSets: hundreds of scale sets beside the pool take longer to ask than one call may.
// The next one goes on where that stopped; the scale set that uses the version is still found.
func TestManyScaleSets(t *testing.T) {
	for _, using := range []int{-1, 0, 123, 399} {
		c := &crowd{sets: 400, using: using}
		p := &Provider{config: Config{Clock: kamino.WallClock{}}, cred: c, options: &arm.ClientOptions{ClientOptions: policy.ClientOptions{Transport: c, Retry: policy.RetryOptions{MaxRetries: -1}}, DisableRPRegistration: true},
			clients: map[string]*clients{}, regions: map[string]region{}, granted: map[string][]permission{}, others: map[string]neighbor{}}
		clients, err := p.of("one")
		if err != nil {
			t.Fatal(err)
		}
		at := place{clients: clients, scaleSet: scaleSet{subscription: "one", group: "rg", name: "mine"}}
		versions := []kamino.Artifact{{Name: "2026.1.1", ID: crowdVersion}}
		for round := 1; ; round++ {
			c.reads = 90
			if err = p.unusedByOthers(t.Context(), at, versions, 0); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, kamino.ErrUnavailable) {
				break
			}
			if round > 6 {
				t.Fatalf("not at its end after %d rounds of 90: %v", round, err)
			}
		}
		if inUse := errors.Is(err, kamino.ErrInUse); inUse != (using >= 0) || !inUse && err != nil {
			t.Errorf("set %d uses it: %v", using, err)
		}
		asked := c.asks
		c.reads = 90
		if err := p.unusedByOthers(t.Context(), at, []kamino.Artifact{{Name: "2026.1.2", ID: crowdVersion[:len(crowdVersion)-1] + "2"}}, 0); using < 0 && (err != nil || c.asks != asked) {
			t.Errorf("the next version: %v after %d more reads", err, c.asks-asked)
		}
	}
}

var _ azcore.TokenCredential = (*crowd)(nil)
