package platform

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino/agent/disk/disktest"
)

func TestOnEC2(t *testing.T) {
	const dmi = "sys/class/dmi/id/"
	for name, tt := range map[string]struct {
		files    map[string]string
		ec2      bool
		instance string
	}{
		"Nitro":                 {map[string]string{dmi + "sys_vendor": "Amazon EC2\n", dmi + "board_asset_tag": "i-0123456789abcdef0\n"}, true, "i-0123456789abcdef0"},
		"Nitro, the tag alone":  {map[string]string{dmi + "board_asset_tag": "i-01234567\n"}, true, "i-01234567"},
		"BIOS vendor":           {map[string]string{dmi + "bios_vendor": "Amazon EC2\n"}, true, ""},
		"Xen":                   {map[string]string{dmi + "sys_vendor": "Xen\n", dmi + "product_uuid": "EC2E1916-9099-7CAF-FD21-012345ABCDEF\n"}, true, ""},
		"Xen, little-endian":    {map[string]string{dmi + "sys_vendor": "Xen\n", dmi + "product_uuid": "45E12AEC-DCD1-B213-94ED-012345ABCDEF\n"}, true, ""},
		"Xen of somebody else":  {map[string]string{dmi + "sys_vendor": "Xen\n", dmi + "product_uuid": "11112222-9099-7caf-fd21-012345abcdef\n"}, false, ""},
		"Azure, UUID like EC2":  {map[string]string{dmi + "sys_vendor": "Microsoft Corporation\n", dmi + "product_uuid": "ec2e1916-9099-7caf-fd21-012345abcdef\n"}, false, ""},
		"a tag that is no name": {map[string]string{dmi + "board_asset_tag": "i-am-a-board\n"}, false, ""},
		"nothing":               {nil, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := disktest.New(t, tt.files)
			if OnEC2(d) != tt.ec2 || InstanceID(d) != tt.instance {
				t.Errorf("EC2 %v, instance %q", OnEC2(d), InstanceID(d))
			}
			if _, is := At(d, "").(*EC2); is != tt.ec2 {
				t.Errorf("service %T", At(d, ""))
			}
		})
	}
}

// ec2Service answers with codes first, then as EC2 does.
type ec2Service struct {
	codes  []int // of requests with a token
	tokens int
	user   string
}

func (s *ec2Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/latest/api/token" {
		if r.Method != http.MethodPut || r.Header.Get("X-Aws-Ec2-Metadata-Token-Ttl-Seconds") != "21600" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		s.tokens++
		_, _ = w.Write([]byte("token\n")) // the client reads it or not
		return
	}
	switch {
	case r.Method != http.MethodGet || r.Header.Get("X-Aws-Ec2-Metadata-Token") != "token":
		w.WriteHeader(http.StatusUnauthorized)
	case len(s.codes) > 0:
		w.WriteHeader(s.codes[0])
		s.codes = s.codes[1:]
	case r.URL.Path == "/latest/meta-data/instance-id":
		_, _ = w.Write([]byte("i-0123456789abcdef0"))
	case r.URL.Path == "/latest/user-data" && s.user != "":
		_, _ = w.Write([]byte(s.user))
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func serveEC2(t *testing.T, s http.Handler) *EC2 {
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return &EC2{Endpoint: server.URL, Client: Direct(), Wait: func(ctx context.Context, _ time.Duration) error { return ctx.Err() }}
}

// TestEC2Session: one token for all requests, another when it has ended, and no user data is none.
func TestEC2Session(t *testing.T) {
	s := &ec2Service{codes: []int{503, 429}}
	c := serveEC2(t, s)
	m, err := c.Instance(t.Context())
	if err != nil || m.InstanceID != "i-0123456789abcdef0" || m.Tag(TagCanary) != "" || s.tokens != 1 {
		t.Fatalf("%+v, %v after %d tokens", m, err, s.tokens)
	}
	if data, err := c.UserData(t.Context()); data != nil || err != nil {
		t.Errorf("%q, %v", data, err)
	}
	s.codes, s.user = []int{401}, "apiVersion: kamino.dev/v1alpha1\nkind: NodeConfig\n"
	if data, err := c.UserData(t.Context()); string(data) != s.user || err != nil || s.tokens != 2 {
		t.Errorf("%q, %v after %d tokens", data, err, s.tokens)
	}
}

// TestEC2HopLimit: the request for a token arrives and its answer does not, as in a pod's network.
func TestEC2HopLimit(t *testing.T) {
	stop := make(chan struct{})
	defer close(stop)
	c := serveEC2(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-stop:
		case <-r.Context().Done():
		}
	}))
	c.Client.Timeout = 50 * time.Millisecond
	c.Wait = func(context.Context, time.Duration) error { return context.DeadlineExceeded }
	if _, err := c.Instance(t.Context()); err == nil || !strings.Contains(err.Error(), "hostNetwork: true") || !strings.Contains(err.Error(), "--http-put-response-hop-limit 2") {
		t.Error(err)
	}
	c.Endpoint = "http://127.0.0.1:1" // nobody is there: nothing is known of hops
	if _, err := c.Instance(t.Context()); err == nil || strings.Contains(err.Error(), "hop") {
		t.Error(err)
	}
}
