package seal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"unicode/utf8"

	"kamino.dev/kamino/agent/disk"
)

// line is how an op is written, one a line.
type line struct {
	Rule  string   `json:"rule"`
	Path  fileName `json:"path"`
	Aside fileName `json:"aside,omitempty"`
	Put   bool     `json:"put,omitempty"`
	Dir   bool     `json:"dir,omitempty"`
	VM    string   `json:"vm,omitempty"`
	Stuck string   `json:"stuck,omitempty"`
}

// fileName is a name as the file system has it: bytes. JSON has text only, and encoding/json puts
// U+FFFD for every other byte, so that two names become one. Such a name is written as {"bytes":
// BASE64}.
type fileName string

type rawName struct {
	Bytes []byte `json:"bytes"`
}

// MarshalJSON implements json.Marshaler.
func (n fileName) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(n)) {
		return json.Marshal(string(n))
	}
	return json.Marshal(rawName{[]byte(n)})
}

// UnmarshalJSON implements json.Unmarshaler.
func (n *fileName) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) == nil {
		*n = fileName(text)
		return nil
	}
	var raw rawName
	if err := json.Unmarshal(data, &raw); err != nil {
		return err
	}
	*n = fileName(raw.Bytes)
	return nil
}

func encodeOps(ops []op) ([]byte, error) {
	var lines bytes.Buffer
	enc := json.NewEncoder(&lines)
	for _, o := range ops {
		if err := enc.Encode(line{o.Rule, fileName(o.Path), fileName(o.Aside), o.Put, o.Dir, o.VM, o.Stuck}); err != nil {
			return nil, err
		}
	}
	return lines.Bytes(), nil
}

func readJournal(d *disk.Disk) ([]op, error) {
	f, err := d.OpenFile(journalPath, os.O_RDONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("read seal journal: %w", err)
	}
	defer f.Close()
	var ops []op
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			// Torn: the write that it was part of was not durable, so nothing of it happened. To
			// take back what did not happen does nothing, so the lines behind it count.
			continue
		}
		ops = append(ops, op{l.Rule, string(l.Path), string(l.Aside), l.Put, l.Dir, l.VM, l.Stuck})
	}
	return ops, lines.Err()
}
