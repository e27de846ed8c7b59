package scan

import (
	"bytes"
	"slices"
	"strings"

	"kamino.dev/kamino/internal/lazyregexp"
)

// The words among secretWords behind which people write what they remember, rather than what a
// machine made.
var passwordWords = []string{"password", "passwd", "passphrase", "pass", "pwd", "pw", "kennwort", "bindpw", "rootpw"}

// Words of sentences about passwords: "enter the password for this account". No passphrase is made
// of them.
var proseWords = []string{"a", "an", "and", "any", "are", "as", "at", "be", "by", "can", "cannot", "for", "from", "has", "if", "is", "it",
	"least", "may", "must", "no", "not", "of", "on", "or", "should", "that", "the",
	"this", "to", "use", "used", "user", "was", "will", "with", "you", "your", "enter", "please", "password", "characters", "invalid",
	"wrong", "account", "login"}

// remembered tells a password that people can remember from a word: so many letters as no name of
// an option has, or, in quotes, several words of which no sentence is made.
func remembered(a assign, last string) bool {
	value := string(a.value)
	if !a.signed || !slices.Contains(passwordWords, last) || isPlaceholder(value) || namesSecret(value) || strings.ToLower(value) != value {
		return false
	}
	words := strings.Fields(value)
	if slices.ContainsFunc(words, func(w string) bool { return strings.Trim(w, lowerAndDigits) != "" || slices.Contains(proseWords, w) }) {
		return false
	}
	const letters, chars, least, most = 16, 16, 3, 10
	if len(words) == 1 {
		return len(value) >= letters && len(value) <= 64
	}
	return a.quoted && len(value) >= chars && len(words) >= least && len(words) <= most &&
		(len(words) > least || strings.ContainsAny(value, "0123456789"))
}

const lowerAndDigits = "abcdefghijklmnopqrstuvwxyz0123456789"

var shortOption = lazyregexp.New(`^ -p ["']?([A-Za-z0-9!@#%^&*+?~_-]{8,64})(?:["'\s]|$)`)

// Programs whose -p is no password, and takes a name.
var notLogins = []string{"mkdir", "cp", "install", "rsync", "unzip", "patch", "tar", "mktemp", "ls", "scp", "git", "ssh-keygen",
	"systemctl", "journalctl", "modprobe", "cargo", "make", "perl"}

// optionPassword is the value after -p on a command line, if nobody would name a thing like that.
func optionPassword(data []byte, at int) []byte {
	part := shortOption.FindSubmatch(data[at:min(at+128, len(data))])
	if part == nil || commented(data, at) || !mixed(string(part[1])) || !scattered.MatchString(string(part[1])) ||
		isPlaceholder(string(part[1])) {
		return nil
	}
	line := data[max(at-256, 0):at]
	line = line[bytes.LastIndexByte(line, '\n')+1:]
	for _, word := range bytes.Fields(line) {
		if slices.Contains(notLogins, string(word[bytes.LastIndexByte(word, '/')+1:])) {
			return nil
		}
	}
	return part[0]
}

var (
	cookie  = lazyregexp.New(`^ookie: ?[\w.-]{1,64}=([A-Za-z0-9%+/=_.~-]{20,})`)
	webhook = lazyregexp.New(`^hook[a-z0-9.-]{0,64}(?::\d+)?/[A-Za-z0-9/_.-]{0,128}?([0-9a-f]{32,64})\b`)
)

// sessionCookie is the header of RFC 6265 with a value that no person chose.
func sessionCookie(data []byte, at int) []byte {
	part := cookie.FindSubmatch(data[at:min(at+512, len(data))])
	if part == nil || !randomLooking(strings.ReplaceAll(string(part[1]), "%", ""), 20) || isPlaceholder(string(part[1])) {
		return nil
	}
	return part[0]
}

// webhookKey is the address of a webhook, which whoever knows it may call: the key is in its path.
func webhookKey(data []byte, at int) []byte {
	part := webhook.FindSubmatch(data[at:min(at+512, len(data))])
	before := data[max(at-64, 0):at]
	if part == nil || !bytes.Contains(before, []byte("://")) || bytes.ContainsAny(before[bytes.LastIndex(before, []byte("://")):],
		" \t\n\"'") || !randomLooking(string(part[1]), 32) || commented(data, at) {
		return nil
	}
	return part[0]
}

var remembering = []pattern{
	{"password", []string{" -p "}, optionPassword, true},
	{"secret", []string{"ookie: ", "ookie:"}, sessionCookie, true},
	{"forge-token", []string{"hook"}, webhookKey, true},
	// RFC 7616
	{"password-hash", []string{"Digest username="}, expr(`Digest username="[^"\n]{1,128}"[^\n]{0,400}response="?[0-9a-f]{32}`), true},
}
