package lazyregexp

import "testing"

// TestNew: an expression is compiled once, at its first use; in a test binary at once, so that an
// invalid one panics there.
func TestNew(t *testing.T) {
	defer func(was bool) { inTest = was }(inTest)
	inTest = false
	bad := New(`(`)
	good := New(`a(b)`)
	if got := good.FindStringSubmatch("xab"); len(got) != 2 || got[1] != "b" {
		t.Errorf("%q", got)
	}
	for name, use := range map[string]func(){
		"when used": func() { bad.MatchString("") },
		"in a test": func() { inTest = true; New(`(`) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("an invalid expression did not panic")
				}
			}()
			use()
		})
	}
}
