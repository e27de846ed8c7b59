package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

// TestPartitionGaps: by sysfs, in whatever order partitions lie, one inside an extended one, and up
// to the disk's end.
func TestPartitionGaps(t *testing.T) {
	sys := t.TempDir()
	dir := filepath.Join(sys, "class/block/sda")
	write := func(name string, n int) {
		at := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(strconv.Itoa(n)+"\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write("size", 1000)
	if gaps, err := partitionGaps(sys, "sda"); err != nil || gaps != nil {
		t.Errorf("no partition: %v, %v", gaps, err)
	}
	for name, p := range map[string][2]int{"sda1": {500, 100}, "sda2": {100, 200}, "sda3": {100, 2}, "sda4": {600, 50}} {
		write(name+"/partition", 1)
		write(name+"/start", p[0])
		write(name+"/size", p[1])
	}
	gaps, err := partitionGaps(sys, "sda")
	if want := []Span{{0, 100 << 9}, {300 << 9, 500 << 9}, {650 << 9, 1000 << 9}}; err != nil || !slices.Equal(gaps, want) {
		t.Errorf("%v, %v, want %v", gaps, err, want)
	}
}

// TestTables: GPT at both ends, and the tables of logical partitions, are no data; what lies beside
// them is.
func TestTables(t *testing.T) {
	image := make([]byte, 1<<20)
	copy(image[512:], "EFI PART")
	binary.LittleEndian.PutUint64(image[512+40:], 34)
	binary.LittleEndian.PutUint64(image[512+48:], 2048-34)
	copy(image[1024:], "entries")
	copy(image[len(image)-512:], "EFI PART")
	copy(image[256<<10+446:], "logical")
	copy(image[256<<10+510:], "\x55\xaa")
	gaps := withoutTables(bytes.NewReader(image), 512, []Span{{0, 512 << 10}, {768 << 10, 1 << 20}})
	if want := []Span{{34 << 9, 512 << 10}, {768 << 10, 2015 << 9}}; !slices.Equal(gaps, want) {
		t.Fatalf("%v, want %v", gaps, want)
	}
	find := func() int64 {
		for _, g := range []Span{{256 << 10, 512 << 10}, gaps[1]} {
			if at, err := firstData(bytes.NewReader(image), g); err != nil || at >= 0 {
				return at
			}
		}
		return -1
	}
	if at := find(); at >= 0 {
		t.Errorf("data at %d", at)
	}
	image[900<<10+7] = 1
	if at := find(); at != 900<<10 {
		t.Errorf("data at %d, want %d", at, 900<<10)
	}
}
