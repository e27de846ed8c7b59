package scan

import (
	"bytes"
	"encoding/base64"

	"kamino.dev/kamino/internal/lazyregexp"
)

// pattern is a kind of credential by its text. Anchors are literals of at least four bytes, one of
// which starts a match.
type pattern struct {
	kind    string
	anchors []string
	check   func(data []byte, at int) []byte
	// prose marks what only its surroundings make a credential (a key's name, a URL). Programs and
	// documentation are full of examples of these, so they count in text files that nobody shipped,
	// and not in raw bytes.
	prose bool
}

// expr checks with a regular expression anchored at the literal, within the next 4 KiB.
func expr(re string) func([]byte, int) []byte {
	compiled := lazyregexp.New(`^(?:` + re + `)`)
	return func(data []byte, at int) []byte { return compiled.Find(data[at:min(at+4096, len(data))]) }
}

// word is expr for what must not continue a word.
func word(re string) func([]byte, int) []byte {
	inner := expr(re)
	return func(data []byte, at int) []byte {
		if at > 0 && isWord(data[at-1]) {
			return nil
		}
		return inner(data, at)
	}
}

// The prefixes of tokens are their issuers' documentation: docs.github.com "GitHub's token
// formats", docs.gitlab.com "Token prefixes", api.slack.com "Token types", developer.hashicorp.com
// "Vault tokens" (hvs., hvb., hvr. since 1.10), docs.npmjs.com, docs.aws.amazon.com "IAM unique
// identifiers", age's format document (age-encryption.org/v1).
var patterns = []pattern{
	// The key's first base64 line belongs to the match: programs contain the bare header as a
	// string. The line break may be escaped, as in JSON.
	{"private-key", []string{"-----BEGIN "}, expr(
		`-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----(?:\s|\\n|\\r)+(?:[A-Za-z-]+: [^\n]*\n+)*\s*[A-Za-z0-9+/=]{16,64}`),
		false},
	{"private-key", []string{"-----BEGIN OpenVPN "},
		expr(`-----BEGIN OpenVPN (?:tls-crypt-v2 (?:client|server)|Static) key(?: V1)?-----(?:\s|\\n|\\r)+[0-9A-Za-z+/=]{16,64}`), false},
	{"private-key", []string{"---- BEGIN SSH2 "}, expr(`---- BEGIN SSH2 (?:ENCRYPTED )?PRIVATE KEY ----`), false},
	{"private-key", []string{"PuTTY-User-Key-File-"}, expr(`PuTTY-User-Key-File-\d: `), false},
	{"private-key", []string{"(11:private-key", "(21:protected-private-key", "(20:shadowed-private-key"},
		expr(`\(\d\d:(?:private|protected-private|shadowed-private)-key\(`), false},
	{"private-key", []string{"Key: (private-key", "Key: (protected-private-key"}, expr(`Key: \((?:protected-)?private-key \(`), false},
	{"private-key", []string{"AGE-SECRET-KEY-", "AGE-PLUGIN-"}, expr(`AGE-(?:SECRET-KEY-1|PLUGIN-[A-Z0-9-]{1,32}-1)[0-9A-Z]{20,}`), false},
	{"private-key", []string{`"kty"`}, expr(`"kty"\s*:\s*"(?:EC|RSA|OKP|oct)"[^{}]{0,300}"(?:d|k)"\s*:\s*"[A-Za-z0-9_-]{20,}"`), false},
	{"token-jwt", []string{"eyJh", "eyJ0", "eyJr", "eyJj", "eyJi", "eyJ4", "eyJl"}, jsonWebToken, false},
	{"token-bootstrap", []string{"token", "Token", "TOKEN"},
		expr(`[Tt][Oo][Kk][Ee][Nn]["']?(?:\s*[:=]\s*|\s+)["']?[a-z0-9]{6}\.[a-z0-9]{16}\b`), false},
	{"token-bearer", []string{"uthorization", "UTHORIZATION"}, authorization, false},
	{"kubeconfig", []string{"client-key-data", "clientKeyData"}, expr(`client-?[kK]ey-?[dD]ata["']?\s*:\s*["']?[A-Za-z0-9+/=]{16,}`),
		false},
	{"azure-sas", []string{"sig="}, expr(`sig=[A-Za-z0-9%+/]{30,}(?:%3[dD]|=)`), false},
	{"azure-key", []string{"AccountKey=", "SharedAccessKey=", "accountKey"},
		expr(`(?:AccountKey|SharedAccessKey|accountKey)["']?\s*[=: ]\s*["']?[A-Za-z0-9+/]{40,}=`), false},
	{"azure-secret", []string{"aadClientSecret", "clientSecret", "CLIENT_SECRET", "client_secret"},
		expr(`(?:aadClientSecret|clientSecret|CLIENT_SECRET|client_secret)["']?\s*[:=]\s*["']?[^\s"'<>{}$]{12,}`), false},
	{"aws-key", []string{"AKIA", "ASIA"}, accessKey, false},
	{"aws-key", []string{"aws_secret_access_key", "AWS_SECRET_ACCESS_KEY"},
		expr(`(?i:aws_secret_access_key)\s*[:=]\s*["']?[A-Za-z0-9+/]{40}`), false},
	{"forge-token", []string{"ghp_", "gho_", "ghs_", "ghu_", "ghr_"}, expr(`gh[posur]_[A-Za-z0-9]{36}`), false},
	{"forge-token", []string{"github_pat_"}, expr(`github_pat_[0-9A-Za-z_]{50,}`), false},
	{"forge-token", []string{"glpat-", "glrt-", "gldt-", "glptt-", "glcbt-", "glsoat-", "glft-", "glagent-", "gloas-"},
		word(`gl(?:pat|rt|dt|ptt|cbt|soat|ft|agent|oas)-[A-Za-z0-9_.-]{18,}`), false},
	{"forge-token", []string{"xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-", "xoxe-", "xoxe.", "xapp-"},
		word(`(?:xox[abprse][-.]|xapp-)[A-Za-z0-9_.-]{16,}`), false},
	{"forge-token", []string{"hooks.slack.com/services/"}, expr(`hooks\.slack\.com/services/T[A-Z0-9]{6,}/B[A-Z0-9]{6,}/[A-Za-z0-9]{20,}`),
		false},
	{"forge-token", []string{"tskey-auth-", "tskey-client-", "tskey-api-", "dckr_pat_", "dckr_oat_", "pypi-AgE", "rubygems_", "dop_v1_",
		"doo_v1_", "dor_v1_", "shpat_", "lin_api_"},
		word(`(?:tskey-[a-z]+-|dckr_[po]at_|pypi-AgE|rubygems_|do[por]_v1_|shpat_|lin_api_)[A-Za-z0-9_-]{16,}`), false},
	{"forge-token", []string{"npm_", "sk_live_", "rk_live_", "glsa_", "glc_eyJ", "PMAK-", "NRAK-"},
		word(`(?:npm_[A-Za-z0-9]{36}|[sr]k_live_[A-Za-z0-9]{20,}|glsa_[A-Za-z0-9]{32}|glc_eyJ[A-Za-z0-9_=-]{20,}|PMAK-[a-f0-9]{24}|NRAK-[A-Z0-9]{20,})`), false},
	{"vault-token", []string{"hvs.", "hvb.", "hvr."}, word(`hv[sbr]\.[A-Za-z0-9_-]{20,}`), false},
	{"google-key", []string{"AIza", "GOCSPX-", "ya29."},
		word(`(?:AIza[0-9A-Za-z_-]{35}\b|GOCSPX-[A-Za-z0-9_-]{20,}|ya29\.[A-Za-z0-9_-]{30,})`), false},
	{"google-key", []string{"refresh_token"}, expr(`refresh_token["']?\s*[:=]\s*["']?1//[A-Za-z0-9_-]{20,}`), false},
	{"registry-auth", []string{`"auth"`, `"identitytoken"`, `"registrytoken"`},
		expr(`"(?:auth|identitytoken|registrytoken)"\s*:\s*"[A-Za-z0-9+/=._-]{12,}"`), false},
	{"registry-auth", []string{"auth =", "auth=", "identitytoken =", "identitytoken="}, tomlAuth, true},
	{"password-hash", cryptAnchors(), cryptHash, false},
	{"password-hash", []string{"grub.pbkdf2."}, expr(`grub\.pbkdf2\.sha512\.\d+\.[0-9A-F]{32,}\.[0-9A-F]{32,}`), false},
	{"password-hash", []string{"{SSHA", "{SHA}", "{PBKDF2"}, expr(`\{(?:SSHA(?:256|384|512)?|SHA|PBKDF2[A-Z0-9-]*)\}[A-Za-z0-9+/=$.]{24,}`),
		false},
	{"password", []string{"UserPassword>", "<Password>"}, expr(`(?:UserPassword|<Password)>[^<]{4,}<`), false},
	{"password", urlAnchors(), urlPassword, true},
	{"password", []string{" -u ", "--user ", "--user=", "sshpass -p"}, commandPassword, true},
	{"vpn-key", []string{"PrivateKey", "PresharedKey", "privateKey", "PRIVATE_KEY"},
		expr(`(?:[Pp]rivateKey|PresharedKey|PRIVATE_KEY)["']?\s*[:=]\s*["']?[A-Za-z0-9+/]{42}[A-Za-z0-9+/=]=`), false},
	{"vpn-key", []string{"privkey:"}, expr(`privkey:[0-9a-f]{64}`), false},
	{"secret", secretAnchors(), assigned, true},
	{"machine-identity", identityAnchors(), identified, true},
}

func isBase64(c byte) bool {
	return c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '+' || c == '/' || c == '='
}

var jwt = lazyregexp.New(`^(eyJ[A-Za-z0-9_-]{8,})\.([A-Za-z0-9_-]{8,})\.[A-Za-z0-9_-]{16,}`)

// jsonWebToken wants a header that decodes to JSON with an algorithm (RFC 7515 section 4.1.1).
func jsonWebToken(data []byte, at int) []byte {
	part := jwt.FindSubmatch(data[at:min(at+4096, len(data))])
	if part == nil {
		return nil
	}
	header, err := base64.RawURLEncoding.DecodeString(string(part[1]))
	if err != nil || !bytes.Contains(header, []byte(`"alg"`)) {
		return nil
	}
	return part[0]
}

var authHeader = lazyregexp.New(`^(?i:uthorization)["']?\s{0,8}[:=]\s{0,8}\[?\s{0,8}["']?(?i:bearer|basic|token) +([A-Za-z0-9._~+/=-]{12,})`)

// authorization is the header of RFC 9110 as HTTP writes it, and as TOML, YAML and JSON configure
// it.
func authorization(data []byte, at int) []byte {
	part := authHeader.FindSubmatch(data[at:min(at+4096, len(data))])
	if part == nil || isPlaceholder(string(part[1])) {
		return nil
	}
	return part[0]
}

var authValue = lazyregexp.New(`^(?:auth|identitytoken)\s*=\s*["']([A-Za-z0-9+/=._-]{12,})["']`)

// tomlAuth is a registry's login in containerd's config.toml: "user:password" in base64.
func tomlAuth(data []byte, at int) []byte {
	if at > 0 && isWord(data[at-1]) || commented(data, at) {
		return nil
	}
	part := authValue.FindSubmatch(data[at:min(at+4096, len(data))])
	if part == nil {
		return nil
	}
	plain, err := base64.StdEncoding.DecodeString(string(part[1]))
	if err != nil || !bytes.Contains(plain, []byte(":")) && bytes.HasPrefix(part[0], []byte("auth")) {
		return nil
	}
	return part[0]
}

var accessKeyID = word(`A[KS]IA[0-9A-Z]{16}\b`)

// accessKey is an AWS access key but those of AWS's documentation.
func accessKey(data []byte, at int) []byte {
	id := accessKeyID(data, at)
	if bytes.Contains(id, []byte("EXAMPLE")) {
		return nil
	}
	return id
}

// crypt(5) lists these prefixes; $apr1$ is Apache's.
func cryptAnchors() []string {
	all := []string{"$2a$", "$2b$", "$2y$", "$gy$", "$sha1$", "$apr1$", "$md5", "$argon2"}
	for _, short := range []string{"$1$", "$5$", "$6$", "$7$", "$y$"} {
		for _, c := range "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" {
			all = append(all, short+string(c))
		}
	}
	return all
}

var crypt = lazyregexp.New(`^\$(?:1\$[./A-Za-z0-9]{1,8}\$[./A-Za-z0-9]{22}|apr1\$[./A-Za-z0-9]{1,8}\$[./A-Za-z0-9]{22}|2[aby]\$\d\d\$[./A-Za-z0-9]{53}` +
	`|5\$(?:rounds=\d+\$)?[./A-Za-z0-9]{1,16}\$[./A-Za-z0-9]{43}|6\$(?:rounds=\d+\$)?[./A-Za-z0-9]{1,16}\$[./A-Za-z0-9]{40,86}` +
	`|(?:y|gy|7)\$[./A-Za-z0-9]{1,16}\$[./A-Za-z0-9]{1,86}\$[./A-Za-z0-9]{43}|sha1\$\d+\$[./A-Za-z0-9]+\$[./A-Za-z0-9]{28}|md5[,$][./A-Za-z0-9$=,]{24,}|argon2(?:id|i|d)\$v=\d+\$[mtp=,0-9]+\$[A-Za-z0-9+/]{8,}\$[A-Za-z0-9+/]{16,})`)

// cryptHash is a password hash of crypt(5), wherever it stands.
func cryptHash(data []byte, at int) []byte { return crypt.Find(data[at:min(at+512, len(data))]) }
