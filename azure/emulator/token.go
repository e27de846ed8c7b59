package emulator

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Identity may ask for tokens. A service principal has ClientID and Secret (or
// Federated for workload identity); a managed identity is found by ClientID,
// ObjectID or ResourceID, or is the one with SystemAssigned.
type Identity struct {
	ClientID       string
	ObjectID       string
	ResourceID     string
	Tenant         string
	Secret         string
	Federated      bool
	SystemAssigned bool
	// Roles are what it may do; nil: everything, everywhere. See also [Server.SetRoles].
	Roles []Role
}

const defaultTenant = "11111111-1111-1111-1111-111111111111"

func tokenPath(path string) bool {
	path = strings.ToLower(path)
	return strings.HasSuffix(path, "/oauth2/token") || strings.HasSuffix(path, "/oauth2/v2.0/token")
}

// answerElsewhere serves what is not ARM: tokens, their discovery, and ARM's own metadata.
func (s *Server) answerElsewhere(c *call) (reply, bool) {
	path := strings.ToLower(strings.TrimSuffix(c.r.URL.Path, "/"))
	switch {
	case strings.HasSuffix(path, "/.well-known/openid-configuration"):
		return s.discovery(c, path), true
	case tokenPath(path):
		return s.issueToken(c), true
	case path == "/metadata/endpoints":
		return s.endpoints(c), true
	case path == "/common/discovery/instance":
		return reply{status: http.StatusOK, body: object{"tenant_discovery_endpoint": s.base(c.r) + "/" + defaultTenant +
			"/v2.0/.well-known/openid-configuration"}}, true
	}
	return reply{}, false
}

// discovery is the OpenID configuration of a tenant; the issuer has the authority's
// scheme and host, which azidentity checks.
func (s *Server) discovery(c *call, path string) reply {
	tenant := strings.Split(strings.Trim(path, "/"), "/")[0]
	authority := s.base(c.r) + "/" + tenant
	token, authorize, issuer := authority+"/oauth2/v2.0/token", authority+"/oauth2/v2.0/authorize", authority+"/v2.0"
	if tenant == "adfs" {
		token, authorize, issuer = authority+"/oauth2/token", authority+"/oauth2/authorize", authority
	}
	return reply{status: http.StatusOK, body: object{
		"issuer": issuer, "token_endpoint": token, "authorization_endpoint": authorize, "jwks_uri": authority + "/discovery/keys",
		"token_endpoint_auth_methods_supported": []string{"client_secret_post", "private_key_jwt"},
		"response_types_supported":              []string{"code", "token"}, "subject_types_supported": []string{"pairwise"},
		"tenant_region_scope": "EU", "cloud_instance_name": strings.TrimPrefix(s.base(c.r), "https://"),
	}}
}

// endpoints is what a client that knows only the ARM endpoint asks for. Its shape goes by
// api-version: 2015-01-01 has few names of its own, 2019-05-01 a list of clouds (azure-cli,
// azure/cli/core/cloud.py, _arm_to_cli_mapper), 2022-09-01 one cloud (hashicorp/go-azure-sdk,
// sdk/internal/metadata). Read there, not seen on ARM.
func (s *Server) endpoints(c *call) reply {
	base, version := s.base(c.r), c.r.URL.Query().Get("api-version")
	if version == "" {
		return reply{err: refuse(http.StatusBadRequest, "MissingApiVersionParameter",
			"The api-version query parameter (?api-version=) is required for all requests.")}
	}
	audiences := []string{base + "/"}
	if version < "2018-05-01" {
		return reply{status: http.StatusOK, body: object{"galleryEndpoint": base + "/", "graphEndpoint": base + "/graph",
			"portalEndpoint": base + "/portal",
			"authentication": object{"loginEndpoint": base + "/adfs", "audiences": audiences}}}
	}
	cloud := object{"name": "Emulator", "resourceManager": base + "/", "gallery": base + "/", "graph": base + "/graph",
		"graphAudience": base + "/graph", "portal": base + "/portal",
		"authentication": object{"loginEndpoint": base + "/adfs", "audiences": audiences, "tenant": "adfs", "identityProvider": "ADFS"},
		"suffixes":       object{}}
	if version < "2022-09-01" {
		return reply{status: http.StatusOK, body: []any{cloud}}
	}
	return reply{status: http.StatusOK, body: cloud}
}

// issueToken answers the client credentials grant (RFC 6749 section 4.4).
func (s *Server) issueToken(c *call) reply {
	form, err := url.ParseQuery(string(c.raw))
	if err != nil || form.Get("grant_type") != "client_credentials" {
		return oauthError(http.StatusBadRequest, "unsupported_grant_type", "AADSTS70003: The app requested an unsupported grant type.")
	}
	who, ok := s.recognise(form)
	if !ok {
		return oauthError(http.StatusUnauthorized, "invalid_client",
			"AADSTS7000215: Invalid client secret provided. Ensure the secret being sent in the request is the client secret value, not the client secret ID, for a secret added to app '"+form.Get("client_id")+"'.")
	}
	audience := strings.TrimSuffix(strings.Fields(form.Get("scope") + " " + form.Get("resource") + " -")[0], ".default")
	return reply{status: http.StatusOK, body: object{
		"token_type": "Bearer", "expires_in": tokenLifetime, "ext_expires_in": tokenLifetime, "access_token": s.mint(who, audience),
	}}
}

// tokenLifetime in seconds: a day. Tokens are not refused when it has passed:
// with a virtual clock client and server would not agree on when that is.
const tokenLifetime = 86399

func oauthError(status int, code, description string) reply {
	return reply{status: status, body: object{"error": code, "error_description": description, "error_codes": []int{7000215},
		"trace_id": identifier(), "correlation_id": identifier()}}
}

// recognise finds who asks for a token.
func (s *Server) recognise(form url.Values) (Identity, bool) {
	id, secret, assertion := form.Get("client_id"), form.Get("client_secret"), form.Get("client_assertion")
	if id == "" || secret == "" && assertion == "" {
		return Identity{}, false
	}
	if len(s.Identities) == 0 {
		return Identity{ClientID: id}, true
	}
	for _, who := range s.Identities {
		if !fold(who.ClientID, id) {
			continue
		}
		return who, who.Secret != "" && who.Secret == secret || who.Federated && assertion != ""
	}
	return Identity{}, false
}

// managed finds a managed identity by the parameters of an IMDS token request.
func (s *Server) managed(q url.Values) (Identity, bool) {
	client, principal, resource := q.Get("client_id"), q.Get("object_id"), q.Get("msi_res_id")
	if resource == "" {
		resource = q.Get("mi_res_id")
	}
	if len(s.Identities) == 0 {
		return Identity{ClientID: client, ObjectID: principal, ResourceID: resource, SystemAssigned: client+principal+resource == ""}, true
	}
	for _, who := range s.Identities {
		switch {
		case client != "" && fold(who.ClientID, client), principal != "" && fold(who.ObjectID, principal),
			resource != "" && fold(who.ResourceID, resource), client+principal+resource == "" && who.SystemAssigned:
			return who, true
		}
	}
	return Identity{}, false
}

// Token is a bearer token for the server's ARM, for tests and rivals that need no client library.
func (s *Server) Token() string {
	s.start()
	return s.mint(Identity{ClientID: "00000000-0000-0000-0000-000000000000"}, "emulator")
}

// mint makes a token in the form of a JWT (azure-cli reads its claims), signed with
// the server's own key.
func (s *Server) mint(who Identity, audience string) string {
	if who.Tenant == "" {
		who.Tenant = defaultTenant
	}
	if who.ObjectID == "" {
		who.ObjectID = derived("object", who.ClientID, who.ResourceID)
	}
	// Expiry follows the wall clock: it is the client's clock that judges it.
	now := time.Now().Unix()
	claims, _ := json.Marshal(object{
		"aud": audience, "iss": "emulator", "iat": now, "nbf": now, "exp": now + tokenLifetime, "tid": who.Tenant, "oid": who.ObjectID,
		"appid": who.ClientID, "xms_mirid": who.ResourceID, "sub": who.ObjectID, "ver": "1.0", "idtyp": "app",
	})
	head := base64.RawURLEncoding.EncodeToString([]byte(`{"typ":"JWT","alg":"HS256"}`))
	signed := head + "." + base64.RawURLEncoding.EncodeToString(claims)
	return signed + "." + s.signature(signed)
}

func (s *Server) signature(signed string) string {
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte(signed))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// authenticate reads the bearer token of an ARM request.
func (s *Server) authenticate(c *call) *apiError {
	scheme, token, _ := strings.Cut(c.r.Header.Get("Authorization"), " ")
	if !fold(scheme, "Bearer") || token == "" {
		return refuse(http.StatusUnauthorized, "AuthenticationFailed", "Authentication failed. The 'Authorization' header is missing.")
	}
	invalid := refuse(http.StatusUnauthorized, "InvalidAuthenticationToken", "The access token is invalid.")
	dot := strings.LastIndexByte(token, '.')
	if dot < 0 || !hmac.Equal([]byte(s.signature(token[:dot])), []byte(token[dot+1:])) {
		return invalid
	}
	parts := strings.Split(token, ".")
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	var claims object
	if err != nil || json.Unmarshal(raw, &claims) != nil {
		return invalid
	}
	c.who = Identity{ClientID: text(claims, "appid"), ObjectID: text(claims, "oid"), ResourceID: text(claims, "xms_mirid")}
	for _, known := range s.Identities {
		if known.ClientID == c.who.ClientID && known.ResourceID == c.who.ResourceID {
			c.who.Roles = known.Roles
		}
	}
	return nil
}

// derived is a stable UUID made of names.
func derived(names ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(names, "\x00")))
	sum[6], sum[8] = sum[6]&0x0f|0x40, sum[8]&0x3f|0x80
	const hexDigits = "0123456789abcdef"
	var b strings.Builder
	for i, v := range sum[:16] {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			b.WriteByte('-')
		}
		b.WriteByte(hexDigits[v>>4])
		b.WriteByte(hexDigits[v&15])
	}
	return b.String()
}
