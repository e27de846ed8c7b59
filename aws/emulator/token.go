package emulator

import (
	"net/http"
	"regexp"
	"strings"
	"time"
)

// Identity may call. Signatures are not checked, only whose they are.
type Identity struct {
	AccessKey string
	ARN       string    // "": arn:aws:iam::ACCOUNT:user/ACCESSKEY
	Role      string    // ARN of the role that AssumeRole and AssumeRoleWithWebIdentity give it by
	Expires   time.Time // zero: never; afterwards ExpiredToken
	Policy    *Policy   // nil: everything. See also [Server.SetPolicy].
}

var credential = regexp.MustCompile(`Credential=([^/,\s]+)/`)

// accessKey is who signed a request (Signature Version 4,
// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-signing-elements.html).
func accessKey(r *http.Request) string {
	if found := credential.FindStringSubmatch(r.Header.Get("Authorization")); found != nil {
		return found[1]
	}
	return ""
}

// authenticate finds who calls. A web identity has no credentials yet.
func (s *Server) authenticate(c *call) *apiError {
	key := c.entry.AccessKey
	if c.action == "AssumeRoleWithWebIdentity" {
		if text(c.in, "WebIdentityToken") == "" {
			return refuse("InvalidIdentityToken", "No web identity token was given")
		}
		return nil
	}
	if key == "" {
		return &apiError{Status: http.StatusForbidden, Code: "MissingAuthenticationToken",
			Message: "Request is missing Authentication Token"}
	}
	who, ok := s.identity(key)
	if !ok {
		code, status := "InvalidClientTokenId", http.StatusForbidden
		if c.service == ec2 {
			code, status = "AuthFailure", http.StatusUnauthorized
		}
		return &apiError{Status: status, Code: code, Message: "AWS was not able to validate the provided access credentials"}
	}
	if who.ARN == "" {
		who.ARN = "arn:aws:iam::" + s.Account + ":user/" + key
	}
	c.who = who
	if !who.Expires.IsZero() && c.now.After(who.Expires) {
		code := map[string]string{ec2: "RequestExpired", ssm: "ExpiredTokenException"}[c.service]
		if code == "" {
			code = "ExpiredToken"
		}
		return refuse(code, "The security token included in the request is expired")
	}
	return nil
}

func (s *Server) identity(key string) (Identity, bool) {
	if who, ok := s.sessions[key]; ok {
		return who, true
	}
	for _, who := range s.Identities {
		if who.AccessKey == key {
			return who, true
		}
	}
	return Identity{AccessKey: key}, len(s.Identities) == 0
}

func getCallerIdentity(c *call) (object, *apiError) {
	return object{"Arn": c.who.ARN, "UserId": c.who.AccessKey, "Account": c.s.Account}, nil
}

// assumeRole gives credentials of a role for an hour, to whoever has an identity of that role.
func assumeRole(c *call) (object, *apiError) {
	s, role := c.s, text(c.in, "RoleArn")
	who := Identity{Role: role}
	known := len(s.Identities) == 0
	for _, i := range s.Identities {
		if i.Role == role && role != "" {
			who, known = i, true
		}
	}
	if !known {
		return nil, &apiError{Status: http.StatusForbidden, Code: "AccessDenied", Message: "Not authorized to perform sts:" + c.action}
	}
	key := "ASIA" + identifier()[:8] + identifier()[:8]
	session := text(c.in, "RoleSessionName")
	policy := who.Policy
	if set, ok := s.policies[who.AccessKey]; ok && who.AccessKey != "" {
		policy = &set
	}
	expires := time.Now().Add(time.Hour).UTC() // the client's clock judges it
	// arn:aws:iam::ACCOUNT:role/PATH/NAME is called arn:aws:sts::ACCOUNT:assumed-role/NAME/SESSION
	// (STS API reference, AssumedRoleUser).
	prefix, name, _ := strings.Cut(strings.Replace(role, ":iam:", ":sts:", 1), ":role/")
	arn := prefix + ":assumed-role/" + name[strings.LastIndex(name, "/")+1:] + "/" + session
	s.sessions[key] = Identity{AccessKey: key, ARN: arn, Role: role, Policy: policy}
	return object{
		"Credentials":     object{"AccessKeyId": key, "SecretAccessKey": identifier(), "SessionToken": identifier(), "Expiration": expires},
		"AssumedRoleUser": object{"AssumedRoleId": "AROA:" + session, "Arn": arn},
	}, nil
}
