package platform

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"kamino.dev/kamino/agent/scan"
)

func TestSame(t *testing.T) {
	const id = "a1b2c3d4-e5f6-4711-8899-aabbccddeeff"
	swapped := "d4c3b2a1-f6e5-1147-8899-aabbccddeeff"
	if scan.Swapped(id) != swapped || scan.Swapped(swapped) != id {
		t.Fatalf("swapped %s", scan.Swapped(id))
	}
	for other, want := range map[string]bool{id: true, strings.ToUpper(id): true, swapped: true, " " + strings.ToUpper(swapped) + "\n": true,
		"a1b2c3d4-e5f6-4711-8899-aabbccddee00": false, "": false, "00000000-0000-0000-0000-000000000000": false, "ffffffff-ffff-ffff-ffff-ffffffffffff": false, "x": false} {
		t.Run(other, func(t *testing.T) {
			if Same(id, other) != want || Same(other, id) != want {
				t.Errorf("%q: same is %v", other, !want)
			}
		})
	}
	if Same("", "") || Same("00000000-0000-0000-0000-000000000000", "00000000-0000-0000-0000-000000000000") {
		t.Error("two machines without identity are the same")
	}
}

// TestIMDSHeaders: what the service refuses is not sent, and no proxy is asked.
func TestIMDSHeaders(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	var codes []int
	var waits int
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Metadata") != "true" || r.Header.Get("X-Forwarded-For") != "" || r.URL.Query().Get("api-version") == "" {
			t.Errorf("request %s with %v", r.URL, r.Header)
		}
		if len(codes) > 0 {
			code := codes[0]
			codes = codes[1:]
			w.WriteHeader(code)
			return
		}
		_, _ = w.Write([]byte(base64.StdEncoding.EncodeToString([]byte("hello")))) // the client reads it or not
	}))
	defer s.Close()
	c := IMDS{Endpoint: s.URL, Client: Direct(), Wait: func(ctx context.Context, _ time.Duration) error { waits++; return ctx.Err() }}
	codes = []int{410, 429, 503, 408}
	if data, err := c.UserData(t.Context()); err != nil || string(data) != "hello" || waits != 4 {
		t.Errorf("%q, %v after %d waits", data, err, waits)
	}
	codes = []int{404}
	if data, err := c.UserData(t.Context()); err != nil || data != nil {
		t.Errorf("no user data: %q, %v", data, err)
	}
	codes = []int{400}
	var status *Status
	if _, err := c.UserData(t.Context()); !errors.As(err, &status) || status.Code != 400 {
		t.Errorf("refused: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.UserData(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestDescriptionIsCut(t *testing.T) {
	body, err := healthXML(GoalState{"1", "c", "r"}, false, strings.Repeat("ä<&>", 500))
	if err != nil || strings.Count(string(body), "ä") != descriptionMost/4 || !strings.Contains(string(body), "ProvisioningFailed") {
		t.Errorf("%d characters, %v", len(body), err)
	}
}

func TestParseOVF(t *testing.T) {
	const form = `<Environment xmlns="http://schemas.dmtf.org/ovf/environment/1" xmlns:wa="http://schemas.microsoft.com/windowsazure"><wa:ProvisioningSection><LinuxProvisioningConfigurationSet xmlns="http://schemas.microsoft.com/windowsazure"><HostName> n1 </HostName><UserName>u</UserName><UserPassword>p</UserPassword></LinuxProvisioningConfigurationSet></wa:ProvisioningSection><wa:PlatformSettingsSection><PlatformSettings xmlns="http://schemas.microsoft.com/windowsazure">PPS</PlatformSettings></wa:PlatformSettingsSection></Environment>`
	for settings, want := range map[string]string{
		"": "", "<PreprovisionedVm>false</PreprovisionedVm>": "", "<PreprovisionedVm>True</PreprovisionedVm>": "Running",
		"<PreprovisionedVm>true</PreprovisionedVm><PreprovisionedVMType>Savable</PreprovisionedVMType>": "Savable",
		"<PreprovisionedVmType>None</PreprovisionedVmType>":                                             "None",
	} {
		t.Run(settings, func(t *testing.T) {
			p, err := ParseOVF([]byte(strings.Replace(form, "PPS", settings, 1)))
			if err != nil || p.HostName != "n1" || p.UserName != "u" || p.PPSType != want || Parked(p.PPSType) != (want != "" && want != "None") {
				t.Errorf("%s: %+v, %v", settings, p, err)
			}
		})
	}
	if _, err := ParseOVF([]byte("<html>")); err == nil {
		t.Error("a page is no environment")
	}
}

func FuzzOVF(f *testing.F) {
	f.Add([]byte(`<Environment><ProvisioningSection><LinuxProvisioningConfigurationSet><HostName>n</HostName></LinuxProvisioningConfigurationSet></ProvisioningSection></Environment>`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if p, err := ParseOVF(data); err == nil && p.HostName != strings.TrimSpace(p.HostName) {
			t.Errorf("%q", p.HostName)
		}
	})
}

func FuzzMetadata(f *testing.F) {
	f.Add([]byte(`{"compute":{"vmId":"a1b2c3d4-e5f6-4711-8899-aabbccddeeff","osProfile":{"computerName":"n"}},"extended":{"compute":{"ppsType":"None"}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if m, err := ParseMetadata(data); err == nil && m.Compute.VMID != "" && !Same(m.Compute.VMID, m.Compute.VMID) {
			t.Errorf("vmId %q is not the same as itself", m.Compute.VMID)
		}
	})
}

func FuzzUserData(f *testing.F) {
	f.Add([]byte("aGVs\r\nbG8="))
	f.Fuzz(func(t *testing.T, text []byte) {
		if data, err := DecodeUserData(text); err == nil && len(data) > len(text) {
			t.Errorf("%d bytes of %d", len(data), len(text))
		}
	})
}

func FuzzGoalState(f *testing.F) {
	f.Add([]byte(`<GoalState><Incarnation>1</Incarnation><Container><ContainerId>c</ContainerId><RoleInstanceList><RoleInstance><InstanceId>r</InstanceId></RoleInstance></RoleInstanceList></Container></GoalState>`))
	f.Fuzz(func(t *testing.T, data []byte) {
		g, err := ParseGoalState(data)
		if err != nil {
			return
		}
		if g.Incarnation == "" || g.ContainerID == "" || g.InstanceID == "" {
			t.Errorf("%+v", g)
		}
		if _, err := healthXML(g, true, ""); err != nil {
			t.Error(err)
		}
	})
}

// routes answers as a machine does that has no route at first, then an IMDS that is busy.
type routes struct{ without, busy int }

func (r *routes) RoundTrip(*http.Request) (*http.Response, error) {
	if r.without > 0 {
		r.without--
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ENETUNREACH)}
	}
	code := http.StatusOK
	if r.busy > 0 {
		r.busy--
		code = http.StatusTooManyRequests
	}
	return &http.Response{StatusCode: code, Body: io.NopCloser(strings.NewReader(""))}, nil
}

// TestIMDSWithoutRoute: kubelet waits for the network, however late it comes; a busy IMDS is asked
// ever more seldom.
func TestIMDSWithoutRoute(t *testing.T) {
	var waits []time.Duration
	c := IMDS{Endpoint: DefaultIMDS, Client: &http.Client{Transport: &routes{without: 100, busy: 20}},
		Wait: func(_ context.Context, d time.Duration) error { waits = append(waits, d); return nil }}
	if _, err := c.UserData(t.Context()); err != nil || len(waits) != 120 {
		t.Fatalf("%d waits, %v", len(waits), err)
	}
	if most := slices.Max(waits[:100]); most != noRoutePause {
		t.Errorf("without a route it waits %s", most)
	}
	if last := waits[119]; last < 3*time.Second {
		t.Errorf("a busy IMDS is asked again after %s", last)
	}
}
