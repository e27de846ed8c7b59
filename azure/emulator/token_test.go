package emulator

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// Point 10: tokens.

// grant asks for a token with a form.
func (w *world) grant(path string, form url.Values) answer {
	w.Helper()
	return w.do(http.MethodPost, w.url+path, form.Encode(), "Content-Type", "application/x-www-form-urlencoded")
}

func TestDiscoveryNamesTheAuthoritysOwnHost(t *testing.T) {
	w := onePool(t, nil)
	for path, token := range map[string]string{
		"/some-tenant/v2.0/.well-known/openid-configuration": "/some-tenant/oauth2/v2.0/token",
		"/adfs/.well-known/openid-configuration":             "/adfs/oauth2/token",
	} {
		body := w.must(200, http.MethodGet, w.url+path, "").body
		if text(body, "token_endpoint") != w.url+token || !strings.HasPrefix(text(body, "issuer"), w.url) || text(body, "authorization_endpoint") == "" {
			t.Errorf("%s: %v", path, body)
		}
	}
	for version, names := range map[string][]string{"2015-01-01": {"galleryEndpoint", "graphEndpoint", "portalEndpoint"}, "2022-09-01": {"name", "gallery", "graph", "portal", "resourceManager"}} {
		body := w.must(200, http.MethodGet, w.url+"/metadata/endpoints?api-version="+version, "").body
		for _, name := range names {
			if text(body, name) == "" {
				t.Errorf("%s: no %s in %v", version, name, body)
			}
		}
		if text(body, "authentication", "loginEndpoint") != w.url+"/adfs" || len(body) != map[string]int{"2015-01-01": 4, "2022-09-01": 8}[version] {
			t.Errorf("%s: endpoints %v", version, body)
		}
	}
	response, err := http.Get(w.url + "/metadata/endpoints?api-version=2019-05-01")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var clouds []object
	if err := json.NewDecoder(response.Body).Decode(&clouds); err != nil || len(clouds) != 1 || text(clouds[0], "authentication", "tenant") != "adfs" {
		t.Errorf("a list of clouds: %v, %v", clouds, err)
	}
	if response, err := http.Get(w.url + "/metadata/endpoints"); err != nil || response.StatusCode != http.StatusBadRequest {
		t.Errorf("without api-version: %v, %v", response, err)
	} else {
		_ = response.Body.Close()
	}
}

func TestTokensForThoseWhoAreKnown(t *testing.T) {
	w := onePool(t, func(s *Server) {
		s.Identities = []Identity{{ClientID: "app", Secret: "right", Roles: []Role{{Actions: []string{"*/read"}}}}, {ClientID: "workload", Federated: true}}
	})
	form := func(client, name, value string) url.Values {
		return url.Values{"grant_type": {"client_credentials"}, "client_id": {client}, name: {value}, "scope": {w.url + "/.default"}}
	}
	for name, bad := range map[string]url.Values{
		"wrong secret":  form("app", "client_secret", "wrong"),
		"unknown":       form("other", "client_secret", "right"),
		"no federation": form("app", "client_assertion", "jwt"),
	} {
		t.Run(name, func(t *testing.T) {
			if a := w.grant("/tenant/oauth2/v2.0/token", bad); a.status != 401 || text(a.body, "error") != "invalid_client" {
				t.Errorf("%s: %d %v", name, a.status, a.body)
			}
		})
	}
	if a := w.grant("/tenant/oauth2/v2.0/token", url.Values{"grant_type": {"password"}}); a.status != 400 {
		t.Errorf("password grant: %d", a.status)
	}
	w.grant("/adfs/oauth2/token", form("workload", "client_assertion", "jwt"))
	good := w.grant("/adfs/oauth2/token", form("app", "client_secret", "right"))
	token := text(good.body, "access_token")
	if good.status != 200 || text(good.body, "token_type") != "Bearer" || strings.Count(token, ".") != 2 {
		t.Fatalf("grant %v", good.body)
	}
	raw, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err != nil {
		t.Fatal(err)
	}
	var claims map[string]any
	if err := json.Unmarshal(raw, &claims); err != nil || text(claims, "appid") != "app" || text(claims, "tid") == "" || text(claims, "oid") == "" {
		t.Fatalf("claims %s, %v", raw, err)
	}
	w.must(200, http.MethodGet, poolPath, "", "Authorization", "Bearer "+token)
	w.refused(403, "AuthorizationFailed", "The client 'app' with object id", http.MethodDelete, poolPath, "", "Authorization", "Bearer "+token)
}

func TestARMWantsATokenOfItsOwn(t *testing.T) {
	w := onePool(t, nil)
	other := &Server{}
	other.start()
	for name, header := range map[string]string{"none": "", "basic": "Basic YTpi", "garbage": "Bearer x", "three parts": "Bearer a.b.c", "another server's": "Bearer " + other.Token()} {
		t.Run(name, func(t *testing.T) {
			a := w.must(401, http.MethodGet, poolPath, "", "Authorization", header)
			if a.header.Get("WWW-Authenticate") == "" || a.code() == "" {
				t.Errorf("%s: %v %v", name, a.header, a.body)
			}
		})
	}
}

func TestTokenRequestsAreLoggedWithoutTheirSecrets(t *testing.T) {
	w := onePool(t, nil)
	w.grant("/adfs/oauth2/token", url.Values{"grant_type": {"client_credentials"}, "client_id": {"a"}, "client_secret": {"hush"}})
	if log := string(mustJSON(t, w.s.Requests(0))); strings.Contains(log, "hush") {
		t.Fatal(log)
	}
}
