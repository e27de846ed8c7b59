package scan

import (
	"bytes"
	"slices"
	"strings"

	"kamino.dev/kamino/internal/lazyregexp"
)

// A token is letters and digits, or those and the signs of base64, base64url and base32, which pads
// with up to six signs.
var tokenLetters = lazyregexp.New(`^[A-Za-z0-9_+/-]{20,700}={0,6}$`)

var (
	hexOnly       = lazyregexp.New(`^[0-9a-fA-F]+$`)
	bareBootstrap = lazyregexp.New(`^[a-z0-9]{6}\.[a-z0-9]{16}$`)
)

// bareWhy is the detail of a file that bareKind finds.
const bareWhy = "the file holds nothing but a token"

// bareKind is the kind of secret that a text is as a whole; empty: none.
func bareKind(text []byte) string {
	text = bytes.TrimSpace(text)
	switch {
	case bareBootstrap.Match(text):
		return "token-bootstrap"
	case bareToken(text):
		return "secret"
	}
	return ""
}

// bareToken tells a token that a machine made from a name that a person gave. Digests in
// hexadecimal are bareKey's, and a text in base64 is judged by what it holds.
func bareToken(text []byte) bool {
	if !tokenLetters.Match(text) || hexOnly.Match(text) {
		return false
	}
	value := strings.TrimRight(string(text), "=")
	word := longestWord(value)
	return len(word) >= leastWord && !hexOnly.MatchString(word) && randomness(value) > leastRandomness &&
		!isPlaceholder(value) && !encodesText(value)
}

// encodesText reports whether a value is base64 of nothing but printable characters.
func encodesText(value string) bool {
	values := make([]byte, len(value))
	for i := range values {
		values[i] = sextets[value[i]]
	}
	plain := sextetBytes(values, nil)
	return !slices.ContainsFunc(plain, func(c byte) bool { return !printable(c) })
}

const (
	// leastWord: signs are rare in what is random, and frequent in names and paths.
	leastWord = 8
	// leastRandomness is far from the averages of random tokens (0.5 to 0.7) and of names (-0.5).
	leastRandomness = 0.05
)

// longestWord is the longest part without a sign.
func longestWord(value string) (longest string) {
	for word := range strings.FieldsFuncSeq(value, func(c rune) bool { return strings.ContainsRune("_+/-", c) }) {
		if len(word) > len(longest) {
			longest = word
		}
	}
	return longest
}

// randomness is between -1.2 and 2: how little the neighbours in a text look like those in words and
// numbers, on average.
func randomness(value string) float64 {
	sum, pairs := 0.0, 0
	for i := range len(value) - 1 {
		a, b := value[i], value[i+1]
		switch {
		case !isLetter(a) && !digits(a) || !isLetter(b) && !digits(b):
			continue
		case digits(a) && digits(b):
			sum -= 0.5
		case digits(a) || digits(b):
			sum++
		default:
			if a >= 'a' && b < 'a' {
				sum++ // a capital within a word
			}
			switch {
			case a|0x20 == b|0x20 || a+1 == b: // aaaa, abcd
				sum--
			default:
				sum += pairWeights[a|0x20-'a'][b|0x20-'a']
			}
		}
		pairs++
	}
	return sum / float64(max(pairs, 1))
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// pairWeights are what two letters beside each other say: the pairs that are most frequent in English
// words for a word, the others for chance.
var pairWeights = func() (all [26][26]float64) {
	for i := range all {
		for j := range all[i] {
			all[i][j] = 1
		}
	}
	for weight, pairs := range map[float64]string{
		-1.2: "th he in er an re on at en nd ti es or te of ed is it al ar st to nt ng se ha as ou io le ve co me de hi ri ro ic ne ea ra ce li ch ll be ma si om ur ca el ta la ns di",
		-0.3: `fo ho pe ec pr no ct us ac ot il tr ly nc et ut ss so rs un lo wa ge ie wh ee wi em ad ol rt po we na ul ni ts mo ow pa im mi ai sh ir su id os iv ia am fi ci
			vi pl ig tu ev ld ry mp fe bl ab gh ty op wo sa ay ex ke ui fr oo av ag if ap gr od bo sp rd do uc bu ei ov by rm ep tt oc fa ef cu rn sc gi da yo cr cl du ga
			qu ue ff ba ey ls va um pp ua up lu go ht ru ug ds lt pi rc rr eg au ck ew mu br bi pt ak ud ys ub`,
	} {
		for _, pair := range strings.Fields(pairs) {
			all[pair[0]-'a'][pair[1]-'a'] = weight
		}
	}
	return all
}()
