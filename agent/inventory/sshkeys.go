package inventory

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"kamino.dev/kamino/agent/disk"
)

// SSHKeys are the fingerprints of the SSH server's public keys, sorted: the first half of the
// SHA-256 of each in hex, without its comment. Two machines have none in common.
func SSHKeys(d *disk.Disk) (prints []string) {
	names, _ := d.Glob("etc/ssh/ssh_host_*_key.pub") // a pattern of ours is never malformed
	for _, name := range names {
		field := strings.Fields(d.Text(name)) // type, key, comment: sshd(8)
		if len(field) < 2 {
			continue
		}
		sum := sha256.Sum256([]byte(field[1]))
		prints = append(prints, hex.EncodeToString(sum[:len(sum)/2]))
	}
	slices.Sort(prints)
	return prints
}
