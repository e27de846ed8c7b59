package kamino

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

const (
	// LeaseRoom is how much a lease may hold, in bytes. All annotations of an object may have 256
	// KiB together
	// (https://kubernetes.io/docs/concepts/overview/working-with-objects/annotations/); the rest is
	// for annotations of others.
	LeaseRoom = 224 << 10
	// packAbove is the length from which a ledger is stored compressed.
	packAbove = 32 << 10
	packed    = "gzip:"
	unpacked  = 16 << 20 // limit of a decompressed ledger
)

// Pack returns the ledger as it is stored: JSON, compressed if it is long. Saved models repeat the
// settings of extensions, scripts among them.
func (l Ledger) Pack() (string, error) {
	text, err := json.Marshal(l)
	if err != nil || len(text) < packAbove {
		return string(text), err
	}
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(text); err != nil {
		return "", fmt.Errorf("compress the ledger: %w", err)
	}
	if err := w.Close(); err != nil {
		return "", fmt.Errorf("compress the ledger: %w", err)
	}
	return packed + base64.StdEncoding.EncodeToString(out.Bytes()), nil
}

// UnpackLedger reads the text that [Ledger.Pack] wrote.
func UnpackLedger(text string) (l Ledger, err error) {
	data := []byte(text)
	if zipped, ok := strings.CutPrefix(text, packed); ok {
		raw, err := base64.StdEncoding.DecodeString(zipped)
		if err != nil {
			return l, fmt.Errorf("decode the ledger: %w", err)
		}
		r, err := gzip.NewReader(bytes.NewReader(raw))
		if err != nil {
			return l, fmt.Errorf("decompress the ledger: %w", err)
		}
		if data, err = io.ReadAll(io.LimitReader(r, unpacked)); err != nil {
			return l, fmt.Errorf("decompress the ledger: %w", err)
		}
	}
	if err := json.Unmarshal(data, &l); err != nil {
		return l, fmt.Errorf("read the ledger: %w", err)
	}
	return l, nil
}

// Size returns how many bytes of LeaseRoom the lease takes.
func (l Lease) Size() int {
	record, _ := json.Marshal(l.Record) // an error of encoding shows when the lease is written
	ledger, _ := l.Ledger.Pack()
	return len(record) + len(ledger) + len(l.Process)
}

// Trim drops the oldest history of the ledger until the lease has at most this many bytes, as far
// as possible.
func (l *Lease) Trim(most int) {
	for l.Size() > most && l.Ledger.DropOldest() {
	}
}

// DropOldest drops the older half of every history, and reports whether there was any.
func (l *Ledger) DropOldest() bool {
	dropped := halve(&l.Past)
	dropped = halve(&l.Boots) || dropped
	dropped = halve(&l.Phases) || dropped
	dropped = halve(&l.Baked) || dropped
	dropped = halve(&l.Unfit) || dropped
	dropped = halve(&l.Writes) || dropped
	if !dropped && (l.Generic != nil || l.Clone != nil) {
		l.Generic, l.Clone, dropped = nil, nil, true
	}
	return dropped
}

func halve[T any](list *[]T) bool {
	n := len(*list)
	if n > 1 {
		*list = (*list)[: n/2 : n/2]
	}
	return n > 1
}
