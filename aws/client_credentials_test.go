package aws_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/aws"
	"kamino.dev/kamino/aws/emulator"
)

// TestCredentialsLapse: who gave credentials does not answer when they have run out. That is waited
// for, as any service; who never gave some is told what to set.
func TestCredentialsLapse(t *testing.T) {
	for name, tt := range map[string]struct {
		down  func(http.ResponseWriter)
		wants []error // of one call after the other
	}{
		"no answer": {func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, []error{kamino.ErrForbidden, nil, kamino.ErrUnavailable, nil}},
		"500":       {func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) }, []error{nil, kamino.ErrUnavailable, nil}},
	} {
		t.Run(name, func(t *testing.T) {
			var up atomic.Bool
			agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if !up.Load() {
					tt.down(w)
					return
				}
				_ = json.NewEncoder(w).Encode(map[string]any{"AccessKeyId": "AKIANODES", "SecretAccessKey": "not-a-secret", "Token": "t", "Expiration": time.Now().Add(-time.Second).UTC().Format(time.RFC3339)})
			}))
			t.Cleanup(agent.Close)
			c := begin(t, setting{server: func(s *emulator.Server) { s.Identities = []emulator.Identity{{AccessKey: "AKIANODES"}} }})
			t.Setenv("AWS_ACCESS_KEY_ID", "")
			t.Setenv("AWS_SECRET_ACCESS_KEY", "")
			t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", agent.URL+"/v1/credentials")
			p, err := aws.New(aws.Config{})
			c.must(err)
			for i, want := range tt.wants {
				up.Store(want == nil)
				if _, err := p.Pool(t.Context(), "aws:eu-central-1/blue"); !errors.Is(err, want) {
					t.Errorf("call %d: %v, want %v", i+1, err, want)
				}
			}
		})
	}
}

// TestCredentials: a pod finds its role by a web identity (IRSA) or by EKS Pod Identity, a person
// his profile, and a node's own role is found last. What has run out is fetched anew and signs
// nothing.
func TestCredentials(t *testing.T) {
	const role = "arn:aws-us-gov:iam::123456789012:role/kamino"
	file := func(t *testing.T, text string) string {
		t.Helper()
		name := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	// vend gives a key that has run out at once, then one that lasts.
	vend := func() func(w http.ResponseWriter) {
		keys, ends := []string{"ASIAFIRST", "ASIASECOND"}, time.Now().Add(-time.Second)
		return func(w http.ResponseWriter) {
			_ = json.NewEncoder(w).Encode(map[string]any{"Code": "Success", "Type": "AWS-HMAC", "AccessKeyId": keys[0], "SecretAccessKey": "not-a-secret", "Token": "t", "Expiration": ends.UTC().Format(time.RFC3339)})
			if len(keys) > 1 {
				keys, ends = keys[1:], time.Now().Add(time.Hour)
			}
		}
	}
	for _, tt := range []struct {
		name string
		set  func(t *testing.T, endpoint string) map[string]string
		key  string // that signs; a session's is not known before
	}{
		{"IRSA", func(t *testing.T, endpoint string) map[string]string {
			return map[string]string{"AWS_ROLE_ARN": role, "AWS_WEB_IDENTITY_TOKEN_FILE": file(t, "a.b.c"), "AWS_ENDPOINT_URL_STS": endpoint}
		}, ""},
		{"EKS Pod Identity", func(t *testing.T, _ string) map[string]string {
			give := vend()
			agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") != "a.b.c" {
					w.WriteHeader(http.StatusForbidden)
					return
				}
				give(w)
			}))
			t.Cleanup(agent.Close)
			return map[string]string{"AWS_CONTAINER_CREDENTIALS_FULL_URI": agent.URL + "/v1/credentials", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": file(t, "a.b.c")}
		}, "ASIASECOND"},
		{"profile", func(t *testing.T, _ string) map[string]string {
			return map[string]string{"AWS_PROFILE": "nodes", "AWS_SHARED_CREDENTIALS_FILE": file(t, "[default]\naws_access_key_id = AKIAOTHER\naws_secret_access_key = x\n[nodes]\naws_access_key_id = AKIANODES\naws_secret_access_key = x\n")}
		}, "AKIANODES"},
		{"role of the node", func(t *testing.T, _ string) map[string]string {
			give := vend()
			imds := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch path := strings.TrimSuffix(r.URL.Path, "/"); {
				case r.Method == http.MethodPut && path == "/latest/api/token":
					w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "21600")
					_, _ = w.Write([]byte("token"))
				case r.Header.Get("X-Aws-Ec2-Metadata-Token") != "token":
					w.WriteHeader(http.StatusUnauthorized)
				case path == "/latest/meta-data/iam/security-credentials":
					_, _ = w.Write([]byte("node"))
				case path == "/latest/meta-data/iam/security-credentials/node":
					give(w)
				default:
					w.WriteHeader(http.StatusNotFound)
				}
			}))
			t.Cleanup(imds.Close)
			return map[string]string{"AWS_EC2_METADATA_DISABLED": "false", "AWS_EC2_METADATA_SERVICE_ENDPOINT": imds.URL}
		}, "ASIASECOND"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			identities := []emulator.Identity{{AccessKey: "AKIANODES"}, {AccessKey: "ASIAFIRST"}, {AccessKey: "ASIASECOND"}, {AccessKey: "AKIAROLE", Role: role}}
			c := begin(t, setting{server: func(s *emulator.Server) { s.Identities, s.Region = identities, "us-gov-west-1" }})
			for name, value := range tt.set(t, os.Getenv("AWS_ENDPOINT_URL")) {
				t.Setenv(name, value)
			}
			t.Setenv("AWS_ACCESS_KEY_ID", "")
			t.Setenv("AWS_SECRET_ACCESS_KEY", "")
			t.Setenv("AWS_REGION", "us-gov-west-1")
			p, err := aws.New(aws.Config{})
			c.must(err)
			if _, err := p.Pool(t.Context(), kamino.PoolID("aws:us-gov-west-1/blue")); err != nil {
				t.Fatal(err)
			}
			log := c.server.Requests(0)
			if signed := log[len(log)-1].AccessKey; tt.key != "" && signed != tt.key {
				t.Errorf("%s signed, want %s", signed, tt.key)
			}
		})
	}
}
