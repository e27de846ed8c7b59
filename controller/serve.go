package controller

import (
	"context"
	"crypto/sha256"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authentication "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorization "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// authenticated lets clients read the metrics whose token the API server knows and allows to get
// the path. controller-runtime's filter links the whole of k8s.io/apiserver.
func authenticated(config *rest.Config, client *http.Client, now func() time.Time) (server.Filter, error) {
	who, err := authentication.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, err
	}
	may, err := authorization.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, err
	}
	r := &reviews{who: who.TokenReviews(), may: may.SubjectAccessReviews(), now: now, turns: make(chan struct{}, reviewsAtOnce), known: map[[sha256.Size]byte]reviewed{}}
	return func(log logr.Logger, next http.Handler) (http.Handler, error) {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			token, ok := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
			if !ok {
				http.Error(w, "a bearer token is required", http.StatusUnauthorized)
				return
			}
			switch code, err := r.judge(req.Context(), token, req.URL.Path); {
			case err != nil:
				log.Error(err, "ask who may see the metrics")
				http.Error(w, "the API server did not answer", http.StatusServiceUnavailable)
			case code != http.StatusOK:
				http.Error(w, http.StatusText(code), code)
			default:
				next.ServeHTTP(w, req)
			}
		}), nil
	}, nil
}

const (
	reviewsAtOnce  = 4                // requests to the API server at the same time
	rememberDenied = 10 * time.Second // how long a denial is cached
	rememberKnown  = time.Minute      // how long a permission is cached
	mostReviewed   = 1024             // number of cached tokens
)

// reviews asks the API server about tokens, and caches its answers for a short time, because
// anybody who reaches the address can send any number of tokens.
type reviews struct {
	who   authentication.TokenReviewInterface
	may   authorization.SubjectAccessReviewInterface
	now   func() time.Time
	turns chan struct{}

	mu    sync.Mutex
	known map[[sha256.Size]byte]reviewed // by hash of token and path
}

type reviewed struct {
	code  int
	until time.Time
}

// judge returns the status of a request: 200, 401 or 403; 429 if too many others are being
// reviewed.
func (r *reviews) judge(ctx context.Context, token, path string) (int, error) {
	key := sha256.Sum256([]byte(token + "\x00" + path))
	if code, ok := r.recall(key); ok {
		return code, nil
	}
	select {
	case r.turns <- struct{}{}:
		defer func() { <-r.turns }()
	default:
		return http.StatusTooManyRequests, nil
	}
	code, err := review(ctx, r.who, r.may, token, path)
	if err != nil {
		return 0, err
	}
	r.remember(key, code)
	return code, nil
}

func (r *reviews) recall(key [sha256.Size]byte) (code int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, ok := r.known[key]
	return v.code, ok && r.now().Before(v.until)
}

func (r *reviews) remember(key [sha256.Size]byte, code int) {
	now, last := r.now(), rememberDenied
	if code == http.StatusOK {
		last = rememberKnown
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.known) >= mostReviewed {
		maps.DeleteFunc(r.known, func(_ [sha256.Size]byte, v reviewed) bool { return v.code != http.StatusOK || !now.Before(v.until) })
	}
	if len(r.known) < mostReviewed {
		r.known[key] = reviewed{code, now.Add(last)}
	}
}

// review asks the API server whose token it is, and whether that user may get the path.
func review(ctx context.Context, who authentication.TokenReviewInterface, may authorization.SubjectAccessReviewInterface, token, path string) (int, error) {
	answer, err := who.Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return 0, err
	}
	if !answer.Status.Authenticated {
		return http.StatusUnauthorized, nil
	}
	user := answer.Status.User
	extra := map[string]authorizationv1.ExtraValue{}
	for key, values := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	access, err := may.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"}}}, metav1.CreateOptions{})
	if err != nil {
		return 0, err
	}
	if !access.Status.Allowed {
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}
