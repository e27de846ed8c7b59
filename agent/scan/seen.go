package scan

import (
	"encoding/binary"
	"hash/maphash"
	"io/fs"
	"sync"
	"syscall"
)

// Seen is what a scan has looked at, so that another one looks only at what changed since: a file
// of another inode, size or time of change (ctime, which no program can set) than the one that had
// the name. It takes 16 bytes a file. The zero value has seen nothing; it is safe for concurrent
// use.
type Seen struct {
	mu    sync.Mutex
	seed  maphash.Seed
	files map[uint64]uint64 // name → state, each hashed
	names []string          // Options.Unvouched of the scan before
}

// also are the names that a scan is given besides, or the former scan's if it is given none.
func (s *Seen) also(names []string) []string {
	if s == nil {
		return names
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if names == nil {
		return s.names
	}
	s.names = names
	return names
}

// changed reports whether a file is another than the one seen under its name, and notes it. A nil
// Seen knows none.
func (s *Seen) changed(name string, info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	if s == nil || !ok {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.files == nil {
		s.seed, s.files = maphash.MakeSeed(), map[uint64]uint64{}
	}
	var state [40]byte
	for i, n := range []uint64{uint64(st.Ino), uint64(st.Dev), uint64(st.Size), uint64(st.Ctim.Sec), uint64(st.Ctim.Nsec)} {
		binary.LittleEndian.PutUint64(state[8*i:], n)
	}
	key, value := maphash.String(s.seed, name), maphash.Bytes(s.seed, state[:])
	before, known := s.files[key]
	s.files[key] = value
	return !known || before != value
}
