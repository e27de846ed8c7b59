package platform

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// service is a metadata service on a virtual clock.
type service struct {
	takes   time.Duration // until it answers
	refuse  []http.Header // of the first answers, each a 429
	asked   []time.Time
	answers map[string]string // by the end of the path
}

func (s *service) RoundTrip(r *http.Request) (*http.Response, error) {
	s.asked = append(s.asked, time.Now())
	select {
	case <-time.After(s.takes):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	code, header, text := http.StatusOK, http.Header{}, ""
	for end, answer := range s.answers {
		if strings.HasSuffix(r.URL.Path, end) {
			text = answer
		}
	}
	if len(s.refuse) > 0 {
		code, header, s.refuse = http.StatusTooManyRequests, s.refuse[0], s.refuse[1:]
	}
	return &http.Response{StatusCode: code, Header: header, Request: r, Body: io.NopCloser(strings.NewReader(text))}, nil
}

const slowDocument = "apiVersion: kamino.dev/v1alpha1\n"

func slowService(takes time.Duration) *service {
	return &service{takes: takes, answers: map[string]string{"/userData": base64.StdEncoding.EncodeToString([]byte(slowDocument)),
		"/api/token": "token", "/user-data": slowDocument}}
}

// TestSlow: a metadata service that takes long to answer is heard, and one that never answers is
// asked again.
func TestSlow(t *testing.T) {
	for cloud, of := range map[string]func(*service) Service{
		"Azure": func(s *service) Service {
			return IMDS{Endpoint: "http://imds.invalid", Client: &http.Client{Transport: s}, Wait: Sleep}
		},
		"EC2": func(s *service) Service {
			return &EC2{Endpoint: "http://imds.invalid", Client: &http.Client{Transport: s}, Wait: Sleep}
		},
	} {
		t.Run(cloud, func(t *testing.T) {
			for _, takes := range []time.Duration{time.Second, 7 * time.Second, 29 * time.Second} {
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
					defer cancel()
					s := slowService(takes)
					if data, err := of(s).UserData(ctx); string(data) != slowDocument {
						t.Errorf("with answers after %s: %q, %v after %d requests", takes, data, err, len(s.asked))
					}
				})
			}
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				s := slowService(time.Hour)
				if _, err := of(s).UserData(ctx); !errors.Is(err, context.DeadlineExceeded) || len(s.asked) < 3 || len(s.asked) > 5 {
					t.Errorf("without an answer: %v after %d requests", err, len(s.asked))
				}
			})
		})
	}
}

// TestThrottled: a service that wants to be left alone is left alone as long as it says, and less
// often asked than IMDS allows where it does not say.
func TestThrottled(t *testing.T) {
	header := func(pairs ...string) http.Header {
		h := http.Header{}
		for i := 0; i < len(pairs); i += 2 {
			h.Set(pairs[i], pairs[i+1])
		}
		return h
	}
	for name, tt := range map[string]struct {
		header http.Header
		pause  time.Duration
	}{
		"in seconds":   {header("Retry-After", "17"), 17 * time.Second},
		"by its clock": {header("Retry-After", "Sat, 21 Nov 2026 10:00:40 GMT", "Date", "Sat, 21 Nov 2026 10:00:00 GMT"), 40 * time.Second},
		"not at all":   {header(), time.Second},
		"no number":    {header("Retry-After", "soon"), time.Second},
		"in the past":  {header("Retry-After", "-5"), time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := slowService(0)
				s.refuse = []http.Header{tt.header, tt.header}
				c := IMDS{Endpoint: "http://imds.invalid", Client: &http.Client{Transport: s}, Wait: Sleep}
				if data, err := c.UserData(t.Context()); string(data) != slowDocument || len(s.asked) != 3 {
					t.Fatalf("%q, %v after %d requests", data, err, len(s.asked))
				}
				for i, at := range s.asked[1:] {
					if paused := at.Sub(s.asked[i]); paused < tt.pause || paused > tt.pause+2*time.Second {
						t.Errorf("asked again after %s, want %s", paused, tt.pause)
					}
				}
			})
		})
	}
}

// TestRetryAfter: the error of a look that ended before the service wanted to be asked again tells
// until when.
func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		s := slowService(0)
		s.refuse = []http.Header{{"Retry-After": {"600"}}}
		_, err := IMDS{Endpoint: "http://imds.invalid", Client: &http.Client{Transport: s}, Wait: Sleep}.UserData(ctx)
		if RetryAfter(err) != 10*time.Minute || len(s.asked) != 1 {
			t.Errorf("%s after %d requests: %v", RetryAfter(err), len(s.asked), err)
		}
	})
	if RetryAfter(errors.New("x")) != 0 {
		t.Error("an error without an answer wants nothing")
	}
}
