package disk

import (
	"bytes"
	"path"
	"testing"
)

// FuzzMounts: whatever the kernel's tables say, or seem to say where a name has a line break in it,
// is read or passed over.
func FuzzMounts(f *testing.F) {
	f.Add("36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n")
	f.Add("1 0 0:1 / / ro - overlay none ro\n2 1 253:0 /a /a rw - xfs /dev/mapper/vg-root rw\n")
	f.Add("36 35 98:0 / /x rw - \n - - - \n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, m := range parseMounts(text) {
			if m.kind == "" || m.point == "" {
				t.Errorf("%q: a mount without a kind or a place: %+v", text, m)
			}
		}
	})
}

// FuzzSwaps: /proc/swaps.
func FuzzSwaps(f *testing.F) {
	f.Add("Filename\tType\tSize\tUsed\tPriority\n/swap\\040file file 524284 0 -2\n/dev/sda2 partition 1 0 -3\n")
	f.Add("Filename\n\n \n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, name := range parseSwaps(text) {
			if name == "" {
				t.Errorf("%q: a swap without a name", text)
			}
		}
	})
}

// FuzzPartition: the signatures of what a partition holds, and the tables of a disk: MBR, extended
// partitions, GPT.
func FuzzPartition(f *testing.F) {
	head := make([]byte, 8192)
	copy(head[512:], "EFI PART")
	head[512+40], head[512+48], head[512+72], head[512+80], head[512+84] = 34, 15, 2, 4, 128
	copy(head[1024:], "Hah!IdontNeedEFI")
	f.Add(bytes.Clone(head), int64(512), 1)
	copy(head[512+72:], "\xff\xff\xff\xff\xff\xff\xff\x7f") // far behind any disk's end
	f.Add(bytes.Clone(head), int64(4096), 4)
	copy(head[4086:], "SWAPSPACE2")
	head[510], head[511] = 0x55, 0xaa
	copy(head[100:], "GRUB")
	f.Add(head, int64(512), 0)
	f.Fuzz(func(t *testing.T, data []byte, sector int64, number int) {
		r := bytes.NewReader(data)
		if _, err := signature(r); err != nil {
			t.Error(err)
		}
		_ = biosBoot(r, number)
		if sector < 512 || sector > 4096 {
			return
		}
		whole := Span{0, int64(len(data))}
		for _, gap := range withoutTables(r, sector, []Span{whole}) {
			if gap.Start < 0 || gap.End > whole.End || gap.Start >= gap.End {
				t.Fatalf("a gap of %+v in %d bytes", gap, len(data))
			}
			at, err := firstData(r, gap)
			if err != nil || at >= gap.End || at >= 0 && at < gap.Start {
				t.Errorf("data at %d of %+v, %v", at, gap, err)
			}
		}
	})
}

// FuzzClean: no name of a rule, a journal or a package's list leads above the root.
func FuzzClean(f *testing.F) {
	for _, seed := range []string{"/etc/hosts", "../../x", "a/../../b", "", "/", "//", "a/./b/"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if got := clean(name); path.IsAbs(got) || got == ".." || len(got) > 2 && got[:3] == "../" {
			t.Errorf("%q becomes %q", name, got)
		}
	})
}
