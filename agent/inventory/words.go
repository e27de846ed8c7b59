package inventory

import (
	"slices"
	"strings"
	"unicode"

	"kamino.dev/kamino/internal/lazyregexp"
)

var (
	// public are digests of images, certificates and public keys, whose letters are random, too.
	public = lazyregexp.New(`sha256:[0-9a-f]{64}|(?s:-----BEGIN (?:PGP PUBLIC KEY BLOCK|(?:TRUSTED )?CERTIFICATE)-----.*?-----END [A-Z ]+-----)`)
	// spoken is what follows the name of a credential in a sentence, a comment or a command.
	spoken    = lazyregexp.New(`(?i)\b(?:pass(?:word|wd|phrase)?|pwd?|psk|secret|token|credentials?|admin|login)\b["']?[ \t]*(?:is\b)?[ \t:=/,]*["'\[]*([^\s"',}\]]{8,})`)
	scattered = lazyregexp.New(`[0-9][A-Za-z]{3,}[0-9]`)
	capitals  = lazyregexp.New(`^[A-Z0-9]+(?:_[A-Z0-9]+)+$`)
	uuid      = lazyregexp.New(`^[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$`)
)

// wordsOf are the words of a text.
func wordsOf(data []byte) []string {
	return strings.FieldsFunc(public.ReplaceAllString(string(data), ""), func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '+' && r != '_'
	})
}

// noPassword is text without a password, also in comments: no word is one, and none that may be one
// stands behind the name of a credential.
func noPassword(_ *look, _ string, data []byte) bool {
	text := public.ReplaceAll(data, nil)
	for _, said := range spoken.FindAllSubmatch(text, -1) {
		if word := string(said[1]); mixed(word) && !harmless.MatchString(word) {
			return false
		}
	}
	return !slices.ContainsFunc(wordsOf(text), passwordLike)
}

// mixed words have lower case, upper case and digits.
func mixed(word string) bool {
	return strings.ContainsAny(word, "0123456789") && strings.ToLower(word) != word && strings.ToUpper(word) != word
}

// passwordLike is a word that nobody would name a thing by: it is mixed, and letters stand between
// its digits.
func passwordLike(word string) bool {
	return len(word) >= 8 && mixed(word) && scattered.MatchString(word)
}

// keyLike is a word of 20 characters and more with letters and digits, as a key in hexadecimal or
// base64 is. Names in capitals, as of TLS' cipher suites, are not.
func keyLike(word string) bool {
	return len(word) >= 20 && !capitals.MatchString(word) && strings.ContainsFunc(word, unicode.IsLetter) &&
		strings.ContainsFunc(word, unicode.IsDigit)
}

// noOddValue is text in which no variable (NAME=VALUE, in the environment of a unit or a program) has
// one word as its value that is mixed, or an id: a password may be called by any name.
func noOddValue(data []byte) bool {
	for _, field := range strings.Fields(unquoted.Replace(string(data))) {
		at := strings.LastIndexByte(field, '=') + 1
		value := field[at:]
		option := strings.HasPrefix(field, "-") || strings.Contains(field, "=-") || strings.HasPrefix(field, "What=")
		if at > 1 && !option && len(value) >= 8 && !strings.ContainsAny(value, "$,:/") && (mixed(value) || uuid.MatchString(value)) {
			return false
		}
	}
	return true
}

var unquoted = strings.NewReplacer(`"`, "", `'`, "")
