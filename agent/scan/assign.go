package scan

import (
	"bytes"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"kamino.dev/kamino/internal/lazyregexp"
)

// The last words of a key's name, in lower case and without separators, that make its value a
// credential.
var secretWords = []string{"password", "passwd", "passphrase", "pass", "pwd", "secret", "token", "bindpw", "rootpw", "authtok",
	"requirepass", "masterauth",
	"credential", "credentials", "psk", "pw", "kennwort", "extpat", "secretkeybase", "clientkey",
	"apikey", "accesskey", "accountkey", "licensekey", "licencekey", "secretkey", "privatekey", "registrationkey", "enrollmentkey",
	"sharedkey", "presharedkey",
	"symmkey", "authkey", "authenticationkey", "encryptionkey", "encryptkey", "encrypt", "signingkey", "masterkey", "workspacekey",
	"appkey", "applicationkey",
	"storagekey", "ingestionkey", "ingestkey", "instrumentationkey", "consumerkey", "tokenkey", "activationkey", "integrationkey",
	"customerkey", "agentkey",
	"nodekey", "serverkey", "sessionkey", "projectkey", "adminkey", "readkey", "writekey", "functionkey", "subscriptionkey", "key"}

// Words that end like one and are none.
var harmlessWords = []string{"bypass", "compass", "overpass", "publickey", "hotkey", "primarykey", "foreignkey", "sortkey",
	"cachekey", "hostkey", "nextpass"}

// secretAnchors are four bytes of every word in the ways in which it is written.
func secretAnchors() []string {
	all := []string{"_pwd", "pwd=", "pwd:", `pwd"`, "pwd ", "Pwd=", "Pwd:", `Pwd"`, "PWD=", "ndpw", "psk=", "psk:", "psk ",
		`psk"`, "PSK ", "PSK=",
		"_key", "-key", "_KEY", "-Key", "Key=", "Key:", `Key"`, "Key ", "Key>", "Key'", "key=", "key:", `key"`, "key ", "key>",
		"key'", "KEY=", "KEY:",
		"_pw=", "_pw:", "_pw ", `_pw"`, "_PW=", "kenn", "Kenn", "_PAT",
		"encrypt =", "encrypt=", `encrypt"`, "encrypt:"}
	for _, w := range []string{"pass", "secr", "toke", "cred", "autht", "rootpw", "masterauth"} {
		all = append(all, w, strings.ToUpper(w[:1])+w[1:], strings.ToUpper(w))
	}
	return all
}

var identityWords = []string{"guid", "machineid", "machineguid", "machineuuid", "hostid", "hostuuid", "hostguid", "agentid", "agentguid",
	"agentuuid", "nodeid", "nodeuuid",
	"deviceid", "deviceuuid", "sensorid", "systemid", "instanceid", "instanceuuid", "collectorid", "installationid", "installid",
	"computerid", "memberid",
	"serverid", "serveruuid", "registrationid", "endpointid", "mgmtuuid", "hardwareid", "beatuuid", "clientuuid",
	"activationid", "customerid"}

func identityAnchors() []string {
	all := []string{"guid", "Guid", "GUID", "uuid", "Uuid", "UUID"}
	for _, w := range []string{"_id", "-id", "_ID", "eid", "tid", "rid", "mid"} {
		for _, end := range []string{"=", ":", `"`, " ", ">"} {
			all = append(all, w+end)
		}
	}
	for c := 'a'; c <= 'z'; c++ {
		for _, w := range []string{"Id", "ID"} {
			for _, end := range []string{"=", ":", `"`, " ", ">"} {
				all = append(all, string(c)+w+end)
			}
		}
	}
	return all
}

// assigned is a credential by the name of its key: key=value, key: value, "key": "value",
// <key>value</key>, name="key" value="value", and "key value" of the configuration files that write
// it so.
func assigned(data []byte, at int) []byte {
	a, ok := assignment(data, at)
	if !ok || commented(data, at) {
		return nil
	}
	last := endsIn(a.key, secretWords)
	if last == "" || endsIn(a.key, harmlessWords) != "" {
		return nil
	}
	value := string(a.value)
	switch {
	case last == "key" && !(a.key == "key" && randomLooking(value, 38)):
		return nil // what is merely called a key is one only where the value is no word
	case strings.HasSuffix(last, "key") && last != "key" || last == "encrypt":
		if len(value) < 12 || strings.ContainsAny(value, ":,") {
			return nil
		}
	case !a.signed && !a.quoted && !(mixed(value) || randomLooking(value, 16)):
		return nil // prose: "password file2", "kpasswd 464/tcp"
	}
	if remembered(a, last) {
		return data[at:a.end]
	}
	// The cheap question first: a file may consist of nothing but keys.
	if !strong(value) || namesSecret(value) || isPlaceholder(value) || isReference(value, a.quoted) {
		return nil
	}
	return data[at:a.end]
}

var uniqueID = lazyregexp.New(`^(?:\{?[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\}?|[0-9a-fA-F]{16,64})$`)

// identified is the identity of an agent or machine by the name of its key.
func identified(data []byte, at int) []byte {
	a, ok := assignment(data, at)
	if !ok || !a.signed || endsIn(a.key, identityWords) == "" || !uniqueID.Match(a.value) || commented(data, at) ||
		monotonous(string(a.value)) {
		return nil
	}
	return data[at:a.end]
}

// assign is one assignment in a text.
type assign struct {
	key    string // in lower case, without separators
	value  []byte
	end    int  // of the value, in the text
	quoted bool // the value is
	signed bool // a sign stands between the two, not only space
}

const (
	longestKey   = 48
	longestSpace = 40
	longestValue = 512
)

// assignment reads the assignment whose key contains data[at].
func assignment(data []byte, at int) (a assign, ok bool) {
	start, end := at, at
	for start > 0 && at-start < longestKey && isKeyByte(data[start-1]) {
		start--
	}
	for end < len(data) && end-at < longestKey && isKeyByte(data[end]) {
		end++
	}
	a.key = normalKey(data[start:end])
	i := end
	for ; i < len(data) && i-end < 3 && (data[i] == '"' || data[i] == '\'' || data[i] == '\\' || data[i] == ']'); i++ {
	}
	closed := i
	i = spaces(data, i)
	element := start > 0 && (data[start-1] == '<' || data[start-1] == ':')
	switch {
	case i >= len(data):
		return a, false
	case data[i] == '>' && element && i == end:
		i, a.signed = i+1, true
	case data[i] == '<' && i == end: // <key>NAME</key><string>VALUE</string>
		at := nextElement.FindIndex(data[i:min(i+96, len(data))])
		if at == nil {
			return a, false
		}
		i, a.signed = i+at[1], true
	case bytes.HasPrefix(data[i:], []byte("value=")) && closed > end:
		i, a.signed = i+len("value="), true
	case data[i] == '=' || data[i] == ':':
		for n := 0; i < len(data) && n < 2 && (data[i] == '=' || data[i] == ':' || data[i] == '>'); n++ {
			i++
		}
		if bytes.HasPrefix(data[i-2:i], []byte("==")) {
			return a, false
		}
		a.signed = true
	case i == closed || closed > end || start > 0 && data[start-1] == '/': // of a path, something else follows
		return a, false
	}
	a.value, a.end, a.quoted = valueAt(data, nextLine(data, spaces(data, i), closed > end))
	return a, len(a.value) > 0
}

var (
	foldedValue = lazyregexp.New(`^[>|][+-]?[ \t]*\r?\n[ \t]+`)
	brokenValue = lazyregexp.New(`^\r?\n[ \t]*["']`)
	nextElement = lazyregexp.New(`^</[A-Za-z]{1,16}>\s{0,40}<[A-Za-z]{1,16}>`)
)

// nextLine is where the value is that YAML folds (">-" and "|") or that JSON breaks behind a quoted
// key's colon.
func nextLine(data []byte, i int, quotedKey bool) int {
	rest := data[i:min(i+64, len(data))]
	if at := foldedValue.FindIndex(rest); at != nil {
		return i + at[1]
	}
	if at := brokenValue.FindIndex(rest); at != nil && quotedKey {
		return i + at[1] - 1 // the quote belongs to the value
	}
	return i
}

// valueAt reads a value, quoted or up to what ends it.
func valueAt(data []byte, i int) (value []byte, end int, quoted bool) {
	for i < len(data) && (data[i] == '[' || data[i] == '\\') {
		i = spaces(data, i+1)
	}
	if i < len(data) && (data[i] == '"' || data[i] == '\'') {
		quote := data[i]
		i++
		for end = i; end < len(data) && end-i < longestValue && data[end] != quote && data[end] != '\n' && data[end] != '\\'; end++ {
		}
		return data[i:end], end, end < len(data) && data[end] == quote || end < len(data) && data[end] == '\\'
	}
	for end = i; end < len(data) && end-i < longestValue && data[end] > ' ' &&
		!bytes.ContainsRune([]byte(`,;"'<>}])`+"`"), rune(data[end])); end++ {
	}
	return data[i:end], end, false
}

func spaces(data []byte, i int) int {
	for start := i; i < len(data) && i-start < longestSpace && (data[i] == ' ' || data[i] == '\t'); i++ {
	}
	return i
}

func isKeyByte(c byte) bool { return isWord(c) || c == '.' }

var separators = strings.NewReplacer("_", "", "-", "", ".", "")

func normalKey(key []byte) string {
	text := separators.Replace(strings.ToLower(string(key)))
	for _, tail := range []string{"base64", "b64", "value", "text", "plain", "string", "clear"} {
		text = strings.TrimSuffix(text, tail)
	}
	return strings.TrimRight(text, "0123456789")
}

// endsIn is the longest of words that key ends in.
func endsIn(key string, words []string) (longest string) {
	for _, w := range words {
		if len(w) > len(longest) && strings.HasSuffix(key, w) {
			longest = w
		}
	}
	return longest
}

// commented tells whether the line of data[at] is a comment: a commented assignment is an example
// that was shipped.
func commented(data []byte, at int) bool {
	start := bytes.LastIndexByte(data[max(at-256, 0):at], '\n') + 1 + max(at-256, 0)
	line := bytes.TrimLeft(data[start:at], " \t")
	for _, sign := range []string{"#", ";", "//", "/*", "* ", "<!--", "dnl ", "REM ", `"#`, ".\\\""} {
		if bytes.HasPrefix(line, []byte(sign)) {
			return true
		}
	}
	return false
}

// urlAnchors: a URL's scheme ends in a letter.
func urlAnchors() (all []string) {
	for c := 'a'; c <= 'z'; c++ {
		all = append(all, string(c)+"://")
	}
	return all
}

var userInfo = lazyregexp.New("^[a-z]://[^\\s/?#@:\"'<>\\\\]{0,128}:([^\\s/?#\"'<>\\\\]{3,256})@[A-Za-z0-9\\[_-]")

// urlPassword is the userinfo of RFC 3986 section 3.2.1 with a password that is none of
// documentation's.
func urlPassword(data []byte, at int) []byte {
	part := userInfo.FindSubmatch(data[at:min(at+512, len(data))])
	if part == nil || commented(data, at) {
		return nil
	}
	password := string(part[1])
	if isPlaceholder(password) || classes(password) == 1 && (len(password) < 8 || exampleHost(data[at+len(part[0])-1:])) {
		return nil
	}
	return part[0]
}

func exampleHost(rest []byte) bool {
	host := rest[:min(len(rest), 128)]
	if end := bytes.IndexAny(host, "/ \"'\n:"); end >= 0 {
		host = host[:end]
	}
	return bytes.Contains(host, []byte("example")) || bytes.Equal(host, []byte("host")) || bytes.Equal(host, []byte("hostname")) ||
		bytes.Equal(host, []byte("server"))
}

var databaseLogin = lazyregexp.New(`^(?:mysql|mariadb)(?:-?(?:dump|admin|import|check|show))?[ \t][^\n|;&]{0,200}?[ \t]-p["']?([^\s"']{6,128})`)

// databasePassword is that of MySQL's and MariaDB's programs, which take it without a space.
func databasePassword(data []byte, at int) []byte {
	part := databaseLogin.FindSubmatch(data[at:min(at+512, len(data))])
	if part == nil || at > 0 && isWord(data[at-1]) || commented(data, at) || isPlaceholder(string(part[1])) || !strong(string(part[1])) {
		return nil
	}
	return part[0]
}

var loginOption = lazyregexp.New(`^(?: -u |--user[ =]|sshpass -p)\s*["']?(?:[^\s:"'$]{1,64}:)?([^\s:"']{6,128})`)

// commandPassword is a login on a command line.
func commandPassword(data []byte, at int) []byte {
	part := loginOption.FindSubmatch(data[at:min(at+512, len(data))])
	if part == nil || commented(data, at) {
		return nil
	}
	bare := !bytes.Contains(part[0], []byte(":")) && !bytes.HasPrefix(part[0], []byte("sshpass"))
	if value := string(part[1]); bare || isPlaceholder(value) || !strong(value) {
		return nil
	}
	return part[0]
}

// What documentation and shipped defaults write where a secret belongs.
var placeholder = lazyregexp.New(`(?i)^[<$%{@&*(\[~]|\$\{|\$\(|\{\{|<[a-z_ -]+>|%[sdv(]|%\{|\.\.\.|…|x{4}|\*{3}|^0+$|^1234|changeme|change[-_ ]me|replace[-_ ]?me|example|placeholder|redacted|dummy|` +
	`insert[-_ ]|your[-_ ]?|^(?:my|the|some|a)?[-_]?(?:pass(?:word|wd|phrase)?|pwd|pw|secret|token|key|credentials?|user(?:name)?|none|null|nil|true|false|yes|no|empty|undefined|default|foo|bar|baz|test|hidden|secure|required|optional)\d{0,3}$`)

// How Splunk and Junos write obfuscated values.
var obfuscated = lazyregexp.New(`^\$[1-9]\$[A-Za-z0-9+/=]{8,}$`)

func isPlaceholder(value string) bool {
	if obfuscated.MatchString(value) {
		return false
	}
	return placeholder.MatchString(value) || monotonous(value)
}

// monotonous values consist of at most three different characters, or count.
func monotonous(value string) bool {
	var seen []byte
	for i := range len(value) {
		if value[i] != '-' && !slices.Contains(seen, value[i]) {
			seen = append(seen, value[i])
		}
	}
	return len(seen) <= 3 && len(value) > 3
}

// Names of algorithms, formats and versions look like passwords: letters and digits.
var technical = lazyregexp.New(`(?i)^(?:[a-z/_.+-]*[-_./])?(?:sha|md|aes|rsa|dsa|ecdsa|hmac|ed|x|curve|cv|utf|iso|base|ipv|tls|ssl|ssh|oauth|openid|pkcs|krb|p|v|http|h|s|ec|es|rs|hs|ps|nist|win|lib|python|php|perl|java|int|uint|float|md5|sasl|ntlm|type|level|option|arg|field|line|mode|step|rule|rfc)[-_]?\d+(?:[-_./,:+a-z]|\d)*$`)

// scattered digits have a word between them: no name of an algorithm or version has.
var scattered = lazyregexp.New(`\d[A-Za-z]{3,}\d`)

// A path, a file's name, a variable, a call or a member: what says where the secret is.
var reference = lazyregexp.New(`^(?:\.{0,2}/[\w.@-]|[A-Za-z]:\\|file:|env:|vault:|/dev/|https?://|secret(?:s|ref)?[:/.])|\.(?:key|pem|crt|cer|json|ya?ml|conf|cfg|ini|txt|so|py|sh|js|go|rb|html?|service|sock|jks|p12|db|list|gpg|asc)$|[()]|::|->|\+=|&&|\|\|`)
var member = lazyregexp.New(`^[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+$`)

// namesSecret is whether a value speaks of secrets rather than being one.
func namesSecret(value string) bool {
	value = strings.ToLower(value)
	return slices.ContainsFunc([]string{"passw", "secret", "token", "apikey", "_key", "-key", "credential", "keyring"},
		func(w string) bool { return strings.Contains(value, w) })
}

func isReference(value string, quoted bool) bool {
	if technical.MatchString(value) && !(mixed(value) && scattered.MatchString(value)) || strings.Contains(value, " ") {
		return true
	}
	if randomLooking(value, 32) {
		return false // base64 may look like a path
	}
	return reference.MatchString(value) || !quoted && (member.MatchString(value) || strings.Contains(value, "["))
}

// strong tells a secret from a word: letters and digits, or three classes of characters.
func strong(value string) bool {
	if len(value) < 6 || !utf8.ValidString(value) ||
		strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c > '~' && !unicode.IsLetter(c) }) {
		return false
	}
	digit := strings.ContainsAny(value, "0123456789")
	letter := strings.ContainsFunc(value, func(c rune) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' })
	sign := strings.ContainsFunc(value, func(c rune) bool { return strings.ContainsRune("!@#$%^&*+=?~", c) })
	return letter && (digit || sign && classes(value) >= 3)
}

// mixed values have lower case, upper case and digits.
func mixed(value string) bool {
	return strings.ContainsAny(value, "0123456789") && strings.ToLower(value) != value && strings.ToUpper(value) != value
}

// classes counts lower case, upper case, digits and signs.
func classes(value string) (n int) {
	var lower, upper, digit, sign int
	for i := range len(value) {
		switch c := value[i]; {
		case c >= 'a' && c <= 'z':
			lower = 1
		case c >= 'A' && c <= 'Z':
			upper = 1
		case c >= '0' && c <= '9':
			digit = 1
		default:
			sign = 1
		}
	}
	return lower + upper + digit + sign
}

// randomLooking values are base64 or hexadecimal of at least so many characters, with many
// different ones.
func randomLooking(value string, least int) bool {
	if len(value) < least {
		return false
	}
	different := map[byte]bool{}
	digits := 0
	for i := range len(value) {
		c := value[i]
		if !isBase64(c) && c != '-' && c != '_' {
			return false
		}
		if c >= '0' && c <= '9' {
			digits++
		}
		different[c] = true
	}
	if strings.Trim(value, "0123456789abcdefABCDEF") == "" {
		return len(different) > 3 // of sixteen
	}
	return digits > 0 && len(different) >= min(least/3, 10)
}
