package platform

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"kamino.dev/kamino/agent/disk"
)

// IMDS is the instance metadata service
// (https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service).
type IMDS struct {
	// Endpoint is http://169.254.169.254 on Azure.
	Endpoint string
	Client   *http.Client
	Wait     func(ctx context.Context, d time.Duration) error
}

// Service is the metadata service of the cloud on whose machine this program runs: *EC2, or IMDS of
// Azure.
type Service interface {
	// Instance is what the service says of the machine.
	Instance(ctx context.Context) (Metadata, error)
	// UserData is the NodeConfig that the machine was given; nil when there is none.
	UserData(ctx context.Context) ([]byte, error)
}

// At is the service of the cloud that SMBIOS names.
func At(d *disk.Disk, endpoint string) Service {
	if OnEC2(d) {
		return &EC2{Endpoint: endpoint, Client: Direct(), Wait: Sleep}
	}
	return IMDS{Endpoint: endpoint, Client: Direct(), Wait: Sleep}
}

// DefaultIMDS is the address that Azure serves, and EC2.
const DefaultIMDS = "http://169.254.169.254"

// Metadata is what the agent needs of Azure's instance document, and what EC2 has of it. All values
// are strings; what is missing is empty.
type Metadata struct {
	// InstanceID is EC2's i-…, which is given once; empty on Azure, where Compute.VMID is.
	InstanceID string `json:"-"`

	Compute struct {
		VMID       string `json:"vmId"`
		Name       string `json:"name"`
		Location   string `json:"location"`
		VMSize     string `json:"vmSize"`
		ResourceID string `json:"resourceId"`
		OSProfile  struct {
			ComputerName  string `json:"computerName"`
			AdminUsername string `json:"adminUsername"`
		} `json:"osProfile"`
		PublicKeys []struct {
			KeyData string `json:"keyData"`
			Path    string `json:"path"`
		} `json:"publicKeys"`
		Tags []struct {
			Name  string `json:"name"`
			Value string `json:"value"`
		} `json:"tagsList"`
		StorageProfile struct {
			ImageReference struct {
				ID           string `json:"id"`
				ExactVersion string `json:"exactVersion"`
			} `json:"imageReference"`
		} `json:"storageProfile"`
	} `json:"compute"`
	Extended struct {
		Compute struct {
			HasCustomData bool   `json:"hasCustomData"`
			PPSType       string `json:"ppsType"`
		} `json:"compute"`
	} `json:"extended"`
}

// The tags of a canary: which image version it is to prove, and what its report repeats.
const (
	TagCanary = "kamino-canary"
	TagNonce  = "kamino-nonce"
)

// Tag is the value of one of the instance's tags; Azure compares their names without case.
func (m Metadata) Tag(name string) string {
	for _, t := range m.Compute.Tags {
		if strings.EqualFold(t.Name, name) {
			return t.Value
		}
	}
	return ""
}

func (m *Metadata) addTag(name, value string) {
	m.Compute.Tags = append(m.Compute.Tags, struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}{name, value})
}

// metadataMost bounds an answer: userData is at most 64 KiB before base64, the instance document a
// few KiB.
const metadataMost = 1 << 20

// Instance fetches the instance document, with the extended part that names the kind of
// pre-provisioning.
func (c IMDS) Instance(ctx context.Context) (Metadata, error) {
	data, err := c.get(ctx, "/metadata/instance?api-version=2021-08-01&extended=true")
	if err != nil {
		return Metadata{}, err
	}
	return ParseMetadata(data)
}

// ParseMetadata decodes an instance document.
func ParseMetadata(data []byte) (Metadata, error) {
	var m Metadata
	if err := json.Unmarshal(data, &m); err != nil {
		return m, fmt.Errorf("decode instance metadata: %w", err)
	}
	if m.Compute.VMID != "" && VMID(m.Compute.VMID) == "" {
		return m, fmt.Errorf("decode instance metadata: compute.vmId %q is not a UUID", m.Compute.VMID)
	}
	return m, nil
}

// UserData fetches and decodes the user data; nil when there is none.
func (c IMDS) UserData(ctx context.Context) ([]byte, error) {
	text, err := c.get(ctx, "/metadata/instance/compute/userData?api-version=2021-01-01&format=text")
	var status *Status
	if errors.As(err, &status) && status.Code == http.StatusNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return DecodeUserData(text)
}

// DecodeUserData decodes base64 as IMDS returns it; line breaks are allowed.
func DecodeUserData(text []byte) ([]byte, error) {
	packed := strings.Join(strings.Fields(string(text)), "")
	if packed == "" {
		return nil, nil
	}
	data, err := base64.StdEncoding.DecodeString(packed)
	if err != nil {
		return nil, fmt.Errorf("decode userData: not base64: %w", err)
	}
	return data, nil
}

// Status is an answer other than success.
type Status struct {
	URL  string
	Code int
	Body string
	// After is how long the service wants to be left alone (Retry-After); zero: it does not say.
	After time.Duration
}

// RetryAfter is how long the service that answered with err wants to be left alone.
func RetryAfter(err error) time.Duration {
	var s *Status
	if errors.As(err, &s) {
		return s.After
	}
	return 0
}

// retryAfter reads the header Retry-After: seconds, or a time by the service's own clock (RFC 9110,
// 10.2.3).
func retryAfter(h http.Header) time.Duration {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if seconds, err := strconv.Atoi(text); err == nil {
		return time.Duration(min(max(seconds, 0), 24*60*60)) * time.Second
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	return max(at.Sub(now), 0)
}

func (s *Status) Error() string { return fmt.Sprintf("get %s: status %d: %s", s.URL, s.Code, s.Body) }

// temporary answers: IMDS says 410 while it is updated, and throttles at about five requests a
// second.
func temporary(err error) bool {
	var s *Status
	if !errors.As(err, &s) {
		return true // no answer: the network is not there yet
	}
	return s.Code == http.StatusGone || s.Code == http.StatusTooManyRequests || s.Code == http.StatusRequestTimeout || s.Code >= 500
}

// unreachable says that the machine has no route yet: nobody was asked, so nobody minds being asked
// again soon.
func unreachable(err error) bool {
	return errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EHOSTUNREACH)
}

// Pauses between two tries.
const (
	// noRoutePause is how soon the network is tried again while there is none: kubelet waits.
	noRoutePause = 100 * time.Millisecond
	// answeredPause keeps a machine below the five requests a second that IMDS allows it
	// (https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service#rate-limiting).
	answeredPause  = 250 * time.Millisecond
	throttledPause = time.Second // where the service says that it is too much, and not until when
)

// answerMost bounds one request. Azure's IMDS was seen to answer after many seconds; cloud-init
// waits 30 s (https://github.com/canonical/cloud-init/issues/4372).
const answerMost = 30 * time.Second

// connectMost bounds the way to an address of the machine's own link.
const connectMost = 5 * time.Second

func (c IMDS) get(ctx context.Context, path string) ([]byte, error) {
	return persist(ctx, c.Wait, func() ([]byte, error) {
		return fetch(ctx, c.Client, http.MethodGet, c.Endpoint+path, "Metadata", "true")
	})
}

// persist asks until there is an answer or the context ends, at first quickly, because this waits
// for the network to come up on the path to kubelet.
func persist(ctx context.Context, wait func(context.Context, time.Duration) error, once func() ([]byte, error)) ([]byte, error) {
	pause := 50 * time.Millisecond
	for {
		data, err := once()
		if err == nil || !temporary(err) {
			return data, err
		}
		next := pause + rand.N(pause/4)
		var status *Status
		if errors.As(err, &status) {
			next = max(next, answeredPause, status.After)
			if status.Code == http.StatusTooManyRequests {
				next = max(next, throttledPause)
			}
		}
		if unreachable(err) {
			next = noRoutePause
		} else {
			pause = min(pause*3/2, 3*time.Second)
		}
		if werr := wait(ctx, next); werr != nil {
			return nil, fmt.Errorf("ask IMDS: %w; last: %w", werr, err)
		}
	}
}

// fetch makes one request with one header.
func fetch(ctx context.Context, client *http.Client, method, url, header, value string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, answerMost)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set(header, value)
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, metadataMost))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, &Status{url, resp.StatusCode, brief(data), retryAfter(resp.Header)}
	}
	return data, nil
}

func brief(data []byte) string {
	text := strings.Join(strings.Fields(string(data)), " ")
	return text[:min(len(text), 200)]
}

// Direct is a client for addresses on the machine's own link: no proxy, no redirects, connections
// refused quickly.
func Direct() *http.Client {
	return &http.Client{
		Timeout: answerMost,
		Transport: &http.Transport{Proxy: nil, DialContext: (&net.Dialer{Timeout: connectMost}).DialContext,
			DisableKeepAlives: false, MaxIdleConns: 2, IdleConnTimeout: 10 * time.Second},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Sleep waits on the wall clock.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
