package controller

import (
	"context"
	"net/http"
	"strings"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authentication "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorization "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// authenticated lets those see the metrics whom the API server knows by their token and allows to
// get the path. What controller-runtime has for it links the whole of k8s.io/apiserver.
func authenticated(config *rest.Config, client *http.Client) (server.Filter, error) {
	who, err := authentication.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, err
	}
	may, err := authorization.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, err
	}
	return func(log logr.Logger, next http.Handler) (http.Handler, error) {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			token, ok := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
			if !ok {
				http.Error(w, "a bearer token is required", http.StatusUnauthorized)
				return
			}
			switch code, err := judge(req.Context(), who.TokenReviews(), may.SubjectAccessReviews(), token, req.URL.Path); {
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

// judge asks the API server whose the token is, and whether he may get the path.
func judge(ctx context.Context, who authentication.TokenReviewInterface, may authorization.SubjectAccessReviewInterface, token, path string) (int, error) {
	review, err := who.Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return 0, err
	}
	if !review.Status.Authenticated {
		return http.StatusUnauthorized, nil
	}
	user := review.Status.User
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
