package seal

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/inventory"
)

// Receipt says that a disk was sealed: by which run, from which donor, and what was done. It is on
// the disk until the disk boots (then in the lineage), and without its rules on the donor's Node.
type Receipt struct {
	APIVersion string      `json:"apiVersion"`
	Kind       string      `json:"kind"`
	Run        string      `json:"run"`
	Nonce      string      `json:"nonce,omitempty"`
	Donor      string      `json:"donor"`
	SealedAt   time.Time   `json:"sealedAt"`
	VMID       string      `json:"vmId"`
	Rules      []RuleCount `json:"rules,omitempty"`
	RuleCount  int         `json:"ruleCount,omitempty"`
	Hash       string      `json:"hash"`
	Agent      string      `json:"agent"`
	// Policy is the SHA-256 in hex of the seal policy that the run brought.
	Policy string `json:"policy,omitempty"`
	inventory.Facts
	SSHKeys []string `json:"sshKeys,omitempty"` // of the donor, as inventory.SSHKeys
	Unknown *Unknown `json:"unknown,omitempty"`
}

// RuleCount is what one rule matched, with the content bytes that went.
type RuleCount struct {
	ID      string `json:"id"`
	Matched int    `json:"matched"`
	Bytes   int64  `json:"bytes"`
}

// sum is the SHA-256 of the receipt's JSON without its hash: it ties the Node's annotation to the
// disk's document.
func (r Receipt) sum() (string, error) {
	r.Hash, r.RuleCount = "", 0
	data, err := json.Marshal(r)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}

// Short is the receipt as it stands on the Node: the rules replaced by their number.
func (r Receipt) Short() Receipt {
	r.RuleCount, r.Rules = len(r.Rules), nil
	return r
}

// ReadReceipt reads and checks the disk's receipt. ok is false when there is none.
func ReadReceipt(d *disk.Disk) (r Receipt, ok bool, err error) {
	data, err := d.ReadFile(ReceiptPath, disk.Small)
	if errors.Is(err, fs.ErrNotExist) {
		return r, false, nil
	}
	if err != nil {
		return r, true, err
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, true, fmt.Errorf("decode receipt: %w", err)
	}
	sum, err := r.sum()
	if err != nil {
		return r, true, err
	}
	if sum != r.Hash {
		return r, true, fmt.Errorf("check receipt: its hash is %s, its content's %s; the disk was changed after the seal", r.Hash, sum)
	}
	return r, true, nil
}

// Retire moves the receipt to the lineage. Repeating it after an interruption adds no second line.
func Retire(d *disk.Disk, r Receipt) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	lines := strings.Split(d.Text(LineagePath), "\n")
	if lines[len(lines)-1] != string(line) {
		if err := d.AppendLine(LineagePath, string(line), 0o644); err != nil {
			return err
		}
	}
	if err := d.Remove(ReceiptPath); err != nil {
		return err
	}
	return d.SyncDir(StateDir)
}
