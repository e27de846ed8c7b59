package controller

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
)

// TestReviews: a token is asked about once while the answer is fresh, a denial for a shorter time
// than a permission, and only a few tokens are asked about at once.
func TestReviews(t *testing.T) {
	asked, fails := 0, false
	client := fake.NewClientset()
	client.PrependReactor("create", "tokenreviews", func(a ktesting.Action) (bool, runtime.Object, error) {
		asked++
		if fails {
			return true, nil, errors.New("no answer")
		}
		in := a.(ktesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
		in.Status.Authenticated = in.Spec.Token == "good" || in.Spec.Token == "stranger"
		in.Status.User.Username = in.Spec.Token
		return true, in, nil
	})
	client.PrependReactor("create", "subjectaccessreviews", func(a ktesting.Action) (bool, runtime.Object, error) {
		in := a.(ktesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
		in.Status.Allowed = in.Spec.User == "good" && in.Spec.NonResourceAttributes.Path == "/metrics"
		return true, in, nil
	})
	now := time.Unix(0, 0)
	r := &reviews{who: client.AuthenticationV1().TokenReviews(), may: client.AuthorizationV1().SubjectAccessReviews(), now: func() time.Time { return now },
		turns: make(chan struct{}, reviewsAtOnce), known: map[[sha256.Size]byte]reviewed{}}
	want := func(when, token, path string, code, requests int) {
		t.Helper()
		asked = 0
		if got, err := r.judge(t.Context(), token, path); err != nil || got != code || asked != requests {
			t.Errorf("%s: %d, %v, after %d requests; want %d after %d", when, got, err, asked, code, requests)
		}
	}
	for _, c := range []struct {
		token string
		code  int
		last  time.Duration
	}{{"good", http.StatusOK, rememberKnown}, {"bad", http.StatusUnauthorized, rememberDenied}, {"stranger", http.StatusForbidden, rememberDenied}} {
		want("first", c.token, "/metrics", c.code, 1)
		want("again", c.token, "/metrics", c.code, 0)
		now = now.Add(c.last)
		want("later", c.token, "/metrics", c.code, 1)
	}
	want("another path", "good", "/other", http.StatusForbidden, 1)
	fails = true
	if _, err := r.judge(t.Context(), "new", "/metrics"); err == nil {
		t.Error("an answer that did not come is taken for one")
	}
	fails = false
	want("after no answer", "new", "/metrics", http.StatusUnauthorized, 1)
	want("one that is known", "good", "/metrics", http.StatusOK, 0)
	for i := range 3 * mostReviewed { // tokens of chance push out none that is known
		if _, err := r.judge(t.Context(), fmt.Sprint("chance", i), "/metrics"); err != nil {
			t.Fatal(err)
		}
	}
	if len(r.known) > mostReviewed {
		t.Errorf("%d are remembered", len(r.known))
	}
	want("after many", "good", "/metrics", http.StatusOK, 0)

	for range reviewsAtOnce { // others are asked about
		r.turns <- struct{}{}
	}
	want("too many", "late", "/metrics", http.StatusTooManyRequests, 0)
	want("too many, and known", "good", "/metrics", http.StatusOK, 0)
	<-r.turns
	want("one is answered", "late", "/metrics", http.StatusUnauthorized, 1)
}
