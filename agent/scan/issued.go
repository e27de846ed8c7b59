package scan

import "bytes"

// letters are what tokens are made of.
const letters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_-"

// each is a prefix with every letter: an anchor has four bytes at least.
func each(letters string, prefixes ...string) (all []string) {
	for _, p := range prefixes {
		for _, c := range letters {
			all = append(all, p+string(c))
		}
	}
	return all
}

// issued are tokens that are known by a part that is the same in all of them: platform.openai.com,
// docs.anthropic.com, SendGrid's and Hugging Face's prefixes; Telegram's "BOT:AA…"
// (core.telegram.org/bots/api); the secrets of Entra applications, whose fourth to sixth characters
// are a digit and "Q~", and the keys of Azure services with the signature JQQJ99 (both as gitleaks
// and Microsoft's security-utilities describe them); addresses of Teams' and Discord's webhooks.
var issued = []pattern{
	{"forge-token", []string{"sk-proj-", "sk-ant-", "sk-svcacct-", "sk-admin-"}, word(`sk-(?:proj|ant|svcacct|admin)-[A-Za-z0-9_-]{24,}`),
		false},
	{"forge-token", each(letters, "SG."), word(`SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}`), false},
	{"forge-token", each(letters[:62], "hf_"), mixedWord(word(`hf_[A-Za-z0-9]{34}\b`)), false},
	{"forge-token", each("EFGH", ":AA"), preceded(digits, 8, expr(`:AA[E-H][A-Za-z0-9_-]{32}\b`)), false},
	{"azure-secret", each(letters+"~.", "7Q~", "8Q~"), preceded(secretLetters, 3, expr(`[78]Q~[A-Za-z0-9_~.-]{31,34}`)), false},
	{"azure-key", []string{"JQQJ99"}, preceded(letterOrDigit, 40, expr(`JQQJ99[A-Za-z0-9]{10,}`)), false},
	{"forge-token", []string{"webhook.office.com/webhookb2/"},
		expr(`webhook\.office\.com/webhookb2/[0-9a-f-]{36}@[0-9a-f-]{36}/IncomingWebhook/[0-9a-f]{32}`), false},
	{"forge-token", []string{"/api/webhooks/"}, expr(`/api/webhooks/\d{17,20}/[A-Za-z0-9_-]{60,}`), false},
	// NT's, beside the LM hash of nothing
	{"password-hash", []string{"aad3b435b51404ee"}, expr(`aad3b435b51404eeaad3b435b51404ee:[0-9a-fA-F]{32}\b`), false},
	{"secret", []string{"kind: Secret", "kind: \"Secret"},
		expr(`kind: "?Secret"?[ \t]*\r?\n(?:[^\n]*\n){0,30}?(?:data|stringData):[ \t]*\r?\n[ \t]+[A-Za-z0-9._-]+:[ \t]*["']?[^\s{<"'$]{6,}`), true},
	{"password", []string{"mysql", "mariadb"}, databasePassword, true},
}

func digits(c byte) bool        { return c >= '0' && c <= '9' }
func letterOrDigit(c byte) bool { return isWord(c) && c != '-' && c != '_' }
func secretLetters(c byte) bool { return isWord(c) || c == '~' || c == '.' }

// preceded wants so many bytes of a kind before a match.
func preceded(kind func(byte) bool, least int, check func([]byte, int) []byte) func([]byte, int) []byte {
	return func(data []byte, at int) []byte {
		if at < least {
			return nil
		}
		for _, c := range data[at-least : at] {
			if !kind(c) {
				return nil
			}
		}
		return check(data, at)
	}
}

// mixedWord wants upper and lower case and a digit: names of functions have the same prefix.
func mixedWord(check func([]byte, int) []byte) func([]byte, int) []byte {
	return func(data []byte, at int) []byte {
		text := check(data, at)
		if _, value, _ := bytes.Cut(text, []byte("_")); !mixed(string(value)) {
			return nil
		}
		return text
	}
}
