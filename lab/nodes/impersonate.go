package nodes

import (
	"context"
	"net/http"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

type userKey struct{}

// asNode makes requests of this context those of the node's kubelet.
func asNode(ctx context.Context, node string) context.Context {
	return context.WithValue(ctx, userKey{}, "system:node:"+node)
}

// impersonating returns a configuration whose requests are made as the user in
// their context. One connection then serves hundreds of kubelets, each with its
// own rights
// (https://kubernetes.io/docs/reference/access-authn-authz/authentication/#user-impersonation).
func impersonating(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.UserAgent = "kubelet/" + kubeletVersion + " (kamino-lab)" // the manager of the fields that it writes
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return impersonator{next} })
	return config
}

type impersonator struct {
	next http.RoundTripper
}

func (i impersonator) RoundTrip(r *http.Request) (*http.Response, error) {
	user, ok := r.Context().Value(userKey{}).(string)
	if !ok {
		return i.next.RoundTrip(r)
	}
	r = r.Clone(r.Context())
	r.Header.Set(transport.ImpersonateUserHeader, user)
	r.Header.Set(transport.ImpersonateGroupHeader, "system:nodes")
	return i.next.RoundTrip(r)
}
