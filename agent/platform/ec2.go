package platform

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/scan"
	"kamino.dev/kamino/agent/userdata"
	"kamino.dev/kamino/internal/lazyregexp"
)

// EC2 is the instance metadata service of AWS, version 2 only: a session token is fetched by PUT,
// and every request shows it
// (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-retrieval.html).
type EC2 struct {
	// Endpoint is http://169.254.169.254.
	Endpoint string
	Client   *http.Client
	Wait     func(ctx context.Context, d time.Duration) error

	mu    sync.Mutex
	token string
}

const (
	tokenHeader    = "X-Aws-Ec2-Metadata-Token"
	lifetimeHeader = "X-Aws-Ec2-Metadata-Token-Ttl-Seconds"
	// lifetime of a token in seconds, of at most six hours. One that ends sooner is fetched anew.
	lifetime = "21600"
)

const (
	vendorPath    = "sys/class/dmi/id/sys_vendor"
	biosPath      = "sys/class/dmi/id/bios_vendor"
	assetTagPath  = "sys/class/dmi/id/board_asset_tag"
	amazonVendor  = "Amazon EC2"
	ec2UUIDPrefix = "ec2"
)

var instanceID = lazyregexp.New(`^i-[0-9a-f]{8}([0-9a-f]{9})?$`)

// InstanceID is the instance that SMBIOS names on Nitro: the asset tag of the board
// (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/identify_ec2_instances.html). Empty on Xen,
// and elsewhere.
func InstanceID(d *disk.Disk) string {
	if id := d.Text(assetTagPath); instanceID.MatchString(id) {
		return id
	}
	return ""
}

// OnEC2 tells by SMBIOS whether this machine is an instance of EC2: the asset tag of Nitro; the
// vendor "Amazon EC2", which Nitro and Graviton show (unverified: as many machines were described,
// none was seen); on Xen the UUID, which begins with ec2 in one of the two byte orders (the page
// above). The UUID alone decides nothing: one in 2,048 of any other cloud begins so.
func OnEC2(d *disk.Disk) bool {
	if InstanceID(d) != "" || d.Text(vendorPath) == amazonVendor || d.Text(biosPath) == amazonVendor {
		return true
	}
	id := SMBIOS(d)
	return d.Text(vendorPath) == "Xen" && (strings.HasPrefix(id, ec2UUIDPrefix) || strings.HasPrefix(scan.Swapped(id), ec2UUIDPrefix))
}

// Instance is what EC2 says of this machine. Its name, keys and users are cloud-init's matter, so
// they are not asked for; tags are not shown to guests (a tag key with a slash, as Kubernetes' own
// have, makes a launch fail where they are), so a canary's stand in its user data.
func (c *EC2) Instance(ctx context.Context) (Metadata, error) {
	id, err := c.get(ctx, "/latest/meta-data/instance-id")
	if err != nil {
		return Metadata{}, err
	}
	m := Metadata{InstanceID: strings.TrimSpace(string(id))}
	if !instanceID.MatchString(m.InstanceID) {
		return m, fmt.Errorf("decode instance metadata: instance-id %q is not of the form i-0123456789abcdef0", m.InstanceID)
	}
	user, err := c.raw(ctx)
	if err != nil {
		return m, err
	}
	parts, err := userdata.Read(user)
	if err != nil {
		return m, err
	}
	if nonce := parts.Nonce(); nonce != "" {
		m.addTag(TagCanary, m.InstanceID)
		m.addTag(TagNonce, nonce)
	}
	return m, nil
}

// UserData is the NodeConfig of ours in the user data; nil when there is none.
func (c *EC2) UserData(ctx context.Context) ([]byte, error) {
	user, err := c.raw(ctx)
	if err != nil {
		return nil, err
	}
	parts, err := userdata.Read(user)
	if err != nil {
		return nil, err
	}
	return parts.NodeConfig()
}

// raw is the user data as EC2 has it, nil when there is none.
func (c *EC2) raw(ctx context.Context) ([]byte, error) {
	data, err := c.get(ctx, "/latest/user-data")
	var status *Status
	if errors.As(err, &status) && status.Code == http.StatusNotFound {
		return nil, nil
	}
	return data, err
}

func (c *EC2) get(ctx context.Context, path string) ([]byte, error) {
	data, err := persist(ctx, c.Wait, func() ([]byte, error) { return c.once(ctx, path) })
	var status *Status
	if errors.As(err, &status) && status.Code == http.StatusForbidden {
		return nil, fmt.Errorf("%w: the metadata service is switched off for this instance: aws ec2 modify-instance-metadata-options --http-endpoint enabled", err)
	}
	return data, err
}

// once asks with the token it has, or a new one. 401 says that the token has ended.
func (c *EC2) once(ctx context.Context, path string) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range 2 {
		if c.token == "" {
			token, err := fetch(ctx, c.Client, http.MethodPut, c.Endpoint+"/latest/api/token", lifetimeHeader, lifetime)
			if err != nil {
				return nil, tooFar(err)
			}
			c.token = strings.TrimSpace(string(token))
		}
		data, err := fetch(ctx, c.Client, http.MethodGet, c.Endpoint+path, tokenHeader, c.token)
		var status *Status
		if errors.As(err, &status) && status.Code == http.StatusUnauthorized {
			c.token = ""
			continue
		}
		return data, err
	}
	return nil, &Status{URL: c.Endpoint + path, Code: http.StatusRequestTimeout,
		Body: "the metadata service refuses the token that it has just given"}
}

// tooFar explains a request for a token that was sent and never answered: the answer has a limit of
// hops, by default one, and the network of a pod is the second
// (https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_InstanceMetadataOptionsRequest.html).
func tooFar(err error) error {
	var dial *net.OpError
	var network net.Error
	if errors.As(err, &network) && network.Timeout() && (!errors.As(err, &dial) || dial.Op != "dial") {
		return fmt.Errorf("%w: no answer to the request for a token; with a metadata hop limit of 1 there is none in a pod's own network: "+
			"use the host's network (hostNetwork: true), or aws ec2 modify-instance-metadata-options --http-put-response-hop-limit 2", err)
	}
	return err
}
