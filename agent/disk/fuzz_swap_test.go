package disk

import "testing"

// FuzzSwapHeader: the header of a swap area, of any page size.
func FuzzSwapHeader(f *testing.F) {
	head := make([]byte, 8192)
	copy(head[4086:], "SWAPSPACE2")
	f.Add(head)
	copy(head[4086:], "S1SUSPEND\x00")
	f.Add(head)
	f.Add([]byte("SWAP-SPACE"))
	f.Fuzz(func(t *testing.T, head []byte) {
		if kind, at := Swap(head); at < 0 || at > int64(len(head)) || kind == "" && at != 0 {
			t.Errorf("%q at %d of %d", kind, at, len(head))
		}
	})
}
