package scan

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// needle is a literal that starts a match; check decides about what stands there and returns the whole match.
type needle struct {
	kind  string
	text  []byte
	check func(data []byte, at int) []byte
}

// matcher finds many literals in one pass: the four bytes at each position are looked up in a bit table, which lets
// almost all of a disk pass at about a nanosecond per byte.
type matcher struct {
	bits    [1 << 13]uint64
	needles map[uint32][]needle
}

func newMatcher(facts Facts) (*matcher, []string) {
	m := &matcher{needles: map[uint32][]needle{}}
	for _, p := range patterns {
		for _, a := range p.anchors {
			m.add(needle{p.kind, []byte(a), p.check})
		}
	}
	own, skipped := factNeedles(facts)
	for _, n := range own {
		m.add(n)
	}
	return m, skipped
}

func (m *matcher) add(n needle) {
	key := binary.LittleEndian.Uint32(n.text)
	h := hash(key)
	m.bits[h>>6] |= 1 << (h & 63)
	m.needles[key] = append(m.needles[key], n)
}

func hash(key uint32) uint32 { return key * 2654435761 >> 13 }

// search reports the matches that start in data[from:until].
func (m *matcher) search(data []byte, from, until int, report func(hit)) {
	until = min(until, len(data)-3)
	for i := from; i < until; i++ {
		key := binary.LittleEndian.Uint32(data[i:])
		h := hash(key)
		if m.bits[h>>6]&(1<<(h&63)) == 0 {
			continue
		}
		for _, n := range m.needles[key] {
			if !bytes.HasPrefix(data[i:], n.text) {
				continue
			}
			text := n.text
			if n.check != nil {
				if text = n.check(data, i); text == nil {
					continue
				}
			}
			report(hit{n.kind, int64(i), bytes.Clone(text)})
		}
	}
}

type pattern struct {
	kind    string
	anchors []string
	check   func(data []byte, at int) []byte
}

// expr checks with a regular expression anchored at the literal, within the next 4 KiB.
func expr(re string) func([]byte, int) []byte {
	compiled := regexp.MustCompile(`^(?:` + re + `)`)
	return func(data []byte, at int) []byte { return compiled.Find(data[at:min(at+4096, len(data))]) }
}

var patterns = []pattern{
	// The key's first base64 line belongs to the match: programs contain the bare header as a string. The line break may
	// be escaped, as in JSON.
	{"private-key", []string{"-----BEGIN "}, expr(`-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----(?:\s|\\n|\\r)+(?:[A-Za-z-]+: [^\n]*\n+)*\s*[A-Za-z0-9+/=]{16,64}`)},
	{"private-key", []string{"LS0tLS1CRUdJTi"}, encodedKey},
	{"private-key", []string{"PuTTY-User-Key-File-"}, expr(`PuTTY-User-Key-File-\d: `)},
	{"token-jwt", []string{"eyJh", "eyJ0", "eyJr", "eyJj", "eyJi", "eyJ4", "eyJl"}, jsonWebToken},
	{"token-bootstrap", []string{"token", "Token", "TOKEN"}, expr(`[Tt][Oo][Kk][Ee][Nn]["']?(?:\s*[:=]\s*|\s+)["']?[a-z0-9]{6}\.[a-z0-9]{16}\b`)},
	{"token-bearer", []string{"uthorization:"}, expr(`uthorization: *(?i:bearer|basic) +[A-Za-z0-9._~+/=-]{12,}`)},
	{"kubeconfig", []string{"client-key-data", "clientKeyData"}, expr(`client-?[kK]ey-?[dD]ata["']?\s*:\s*["']?[A-Za-z0-9+/=]{16,}`)},
	{"azure-sas", []string{"sig="}, expr(`sig=[A-Za-z0-9%+/]{30,}(?:%3[dD]|=)`)},
	{"azure-key", []string{"AccountKey=", "SharedAccessKey=", "accountKey"}, expr(`(?:AccountKey|SharedAccessKey|accountKey)["']?\s*[=:]\s*["']?[A-Za-z0-9+/]{40,}=`)},
	{"azure-secret", []string{"aadClientSecret", "clientSecret", "CLIENT_SECRET", "client_secret"},
		expr(`(?:aadClientSecret|clientSecret|CLIENT_SECRET|client_secret)["']?\s*[:=]\s*["']?[^\s"'<>{}$]{12,}`)},
	{"aws-key", []string{"AKIA", "ASIA"}, expr(`A[KS]IA[0-9A-Z]{16}\b`)},
	{"aws-key", []string{"aws_secret_access_key"}, expr(`aws_secret_access_key\s*[:=]\s*[A-Za-z0-9+/]{40}`)},
	{"forge-token", []string{"ghp_", "gho_", "ghs_", "ghu_"}, expr(`gh[posu]_[A-Za-z0-9]{36}`)},
	{"forge-token", []string{"glpat-", "xoxb-", "xoxp-", "tskey-", "npm_", "dckr_pat_"}, expr(`(?:glpat-|xox[bp]-|tskey-(?:auth|client)-|npm_|dckr_pat_)[A-Za-z0-9_-]{16,}`)},
	{"registry-auth", []string{`"auth"`, `"identitytoken"`}, expr(`"(?:auth|identitytoken)"\s*:\s*"[A-Za-z0-9+/=._-]{12,}"`)},
	{"password-hash", []string{":$6$", ":$y$", ":$5$", ":$1$", ":$2a$", ":$2b$", ":$2y$", ":$7$", ":$gy$"}, expr(`:\$[0-9a-z]+\$[./A-Za-z0-9$=,]{20,}`)},
	{"password", []string{"UserPassword>", "<Password>"}, expr(`(?:UserPassword|<Password)>[^<]{4,}<`)},
	{"vpn-key", []string{"PrivateKey", "PresharedKey"}, expr(`(?:PrivateKey|PresharedKey)\s*=\s*[A-Za-z0-9+/]{42}[A-Za-z0-9+/=]=`)},
	{"vpn-key", []string{"privkey:"}, expr(`privkey:[0-9a-f]{64}`)},
}

// encodedKey is a PEM private key in base64, as kubeconfigs, cloud configurations and Secrets carry it.
func encodedKey(data []byte, at int) []byte {
	end := at
	for end < len(data) && end < at+96 && isBase64(data[end]) {
		end++
	}
	text := data[at : at+(end-at)/4*4]
	plain, err := base64.StdEncoding.DecodeString(string(text))
	if err != nil {
		return nil
	}
	header, _, _ := bytes.Cut(plain, []byte("KEY-----"))
	if len(plain) == len(header) || !bytes.HasSuffix(header, []byte("PRIVATE ")) {
		return nil
	}
	return text
}

func isBase64(c byte) bool {
	return c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '+' || c == '/' || c == '='
}

var jwt = regexp.MustCompile(`^(eyJ[A-Za-z0-9_-]{8,})\.([A-Za-z0-9_-]{8,})\.[A-Za-z0-9_-]{16,}`)

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

// Host names that are every machine's; looking for them would find them everywhere.
var commonHosts = []string{"localhost", "debian", "ubuntu", "linux", "azurelinux", "ip6-localhost", "host", "node", "server", "master", "worker"}

func factNeedles(f Facts) (needles []needle, skipped []string) {
	add := func(kind, text string, boundary func(byte) bool) {
		check := func(data []byte, at int) []byte {
			if at > 0 && boundary(data[at-1]) || at+len(text) < len(data) && boundary(data[at+len(text)]) {
				return nil
			}
			return data[at : at+len(text)]
		}
		needles = append(needles, needle{kind, []byte(text), check})
	}
	if host, _, _ := strings.Cut(f.Host, "."); host != "" {
		if len(host) < 6 || slices.Contains(commonHosts, strings.ToLower(host)) {
			skipped = append(skipped, fmt.Sprintf("host name %q: too short or too common to tell", host))
		} else {
			for _, form := range distinct(host, strings.ToLower(host), strings.ToUpper(host)) {
				add("donor-host", form, isWord)
			}
		}
	}
	for _, a := range f.Addresses {
		if len(a) < 7 || strings.HasPrefix(a, "127.") {
			continue
		}
		add("donor-address", a, func(c byte) bool { return isWord(c) || c == '.' || c == ':' && strings.Contains(a, ":") })
	}
	if id := strings.ToLower(strings.TrimSpace(f.VMID)); len(id) == 36 {
		for _, form := range []string{id, Swapped(id)} {
			for _, form := range distinct(form, strings.ToUpper(form), strings.ReplaceAll(form, "-", "")) {
				add("donor-vm-id", form, isHex)
			}
		}
	}
	if id := strings.ToLower(strings.TrimSpace(f.MachineID)); len(id) == 32 {
		add("donor-machine-id", id, isHex)
	}
	return needles, skipped
}

func isWord(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '-' || c == '_'
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func distinct(all ...string) (out []string) {
	for _, s := range all {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// Swapped is a UUID with the bytes of its first three groups reversed: SMBIOS before 2.6 and Azure's generation 1
// machines store them little-endian. Anything that is no UUID comes back unchanged.
func Swapped(id string) string {
	if len(id) != 36 {
		return id
	}
	pair := func(at ...int) (s string) {
		for _, i := range at {
			s += id[i : i+2]
		}
		return s
	}
	return pair(6, 4, 2, 0) + "-" + pair(11, 9) + "-" + pair(16, 14) + id[18:]
}
