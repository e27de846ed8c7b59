package platform

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// FuzzEC2: whatever EC2's metadata service answers, an instance is read or an error tells why not,
// and no name of an instance is anything else than one.
func FuzzEC2(f *testing.F) {
	f.Add([]byte("token"), []byte("i-0123456789abcdef0\n"), []byte("#cloud-config\n"), 200)
	f.Add([]byte("t\r\nX: y"), []byte("i-\x1b[31m"), []byte{0x1f, 0x8b, 8}, 404)
	f.Add([]byte(""), []byte(""), []byte("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n--b\n\nx\n--b--\n"), 503)
	f.Fuzz(func(t *testing.T, token, id, user []byte, code int) {
		service := answers{"/latest/api/token": token, "/latest/meta-data/instance-id": id, "/latest/user-data": user}
		c := &EC2{Endpoint: "http://ec2.invalid", Client: &http.Client{Transport: service.with(code)},
			Wait: func(context.Context, time.Duration) error { return errors.New("ended") }}
		m, err := c.Instance(t.Context())
		if err == nil && !instanceID.MatchString(m.InstanceID) {
			t.Errorf("instance %q", m.InstanceID)
		}
		_, _ = c.UserData(t.Context())
	})
}

type answers map[string][]byte

func (a answers) with(code int) http.RoundTripper {
	return answering(func(r *http.Request) *http.Response {
		status := http.StatusOK
		if strings.HasSuffix(r.URL.Path, "user-data") && code >= 100 && code < 600 {
			status = code
		}
		return &http.Response{StatusCode: status, Header: http.Header{}, Request: r, Body: io.NopCloser(bytes.NewReader(a[r.URL.Path]))}
	})
}

type answering func(*http.Request) *http.Response

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) { return a(r), nil }
