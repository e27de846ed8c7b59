package seal

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"
)

// compactMost bounds a database that is compacted in memory's reach; containerd's has a few
// megabytes on a busy node.
const compactMost = 256 << 20

// compactBolt returns a Bolt database without its free pages. Bolt never clears a page it frees, so
// the specifications of removed containers, with their environment, stay readable in containerd's
// meta.db for a long time. https://github.com/etcd-io/bbolt#database-backups and containerd's
// plugins/metadata.
func compactBolt(name, work string) ([]byte, error) {
	if info, err := os.Stat(name); err != nil || info.Size() > compactMost {
		return nil, fmt.Errorf("compact %s: unreadable or larger than %d bytes", name, compactMost)
	}
	dir, err := os.MkdirTemp(work, "compact-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	src, err := bolt.Open(name, 0o600, &bolt.Options{ReadOnly: true, Timeout: 2 * time.Second})
	if err != nil {
		return nil, fmt.Errorf("open %s (is containerd still running?): %w", name, err)
	}
	defer src.Close()
	compact := filepath.Join(dir, "meta.db")
	dst, err := bolt.Open(compact, 0o600, nil)
	if err != nil {
		return nil, err
	}
	err = bolt.Compact(dst, src, 1<<20)
	if cerr := dst.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return nil, fmt.Errorf("compact %s: %w", name, err)
	}
	return os.ReadFile(compact)
}
