package read

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"unicode/utf16"
	"unicode/utf8"

	"kamino.dev/kamino/boot"
	"kamino.dev/kamino/internal/lazyregexp"
)

// unpack is what is in a gzip, no larger than a document may be; other data stays as it is.
func unpack(data []byte) ([]byte, error) {
	if !bytes.HasPrefix(data, []byte("\x1f\x8b")) {
		return data, nil
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("read boot: gunzip: %w", err)
	}
	out, err := io.ReadAll(io.LimitReader(z, boot.MaxDocument+1))
	if err != nil {
		return nil, fmt.Errorf("read boot: gunzip: %w; was the file cut off?", err)
	}
	return out, nil
}

// fromUTF16 is text as UTF-8 that PowerShell wrote, which redirects what a program prints as UTF-16
// (about_Redirection); other data stays as it is.
func fromUTF16(data []byte) []byte {
	var order binary.ByteOrder
	switch {
	case bytes.HasPrefix(data, []byte("\xff\xfe")):
		order = binary.LittleEndian
	case bytes.HasPrefix(data, []byte("\xfe\xff")):
		order = binary.BigEndian
	default:
		return data
	}
	out := make([]byte, 0, len(data)/2)
	for i := 2; i+1 < len(data); i += 2 {
		r := rune(order.Uint16(data[i:]))
		if utf16.IsSurrogate(r) && i+3 < len(data) {
			if pair := utf16.DecodeRune(r, rune(order.Uint16(data[i+2:]))); pair != utf8.RuneError {
				r = pair
				i += 2
			}
		}
		out = utf8.AppendRune(out, r)
	}
	return out
}

// kind is something that no reader takes, though people have it at hand.
type kind struct {
	what  string
	sniff func(head []byte) bool
	how   string
}

const (
	fullJournal = "on the node: journalctl -b -o export > journal.txt"
	fullDump    = "on the node: (systemctl show; echo; systemctl show --all '*') > node.txt"
)

// consoleMark is how systemd marks a line on a console.
var consoleMark = lazyregexp.New(`(?m)^.{0,40}\[(?:\x1b\[[0-9;]*m)?(?:  OK  |FAILED|DEPEND| TIME )(?:\x1b\[[0-9;]*m)?\] `)

// kinds are what is named and not read. Order matters where one text has marks of two.
func kinds() []kind {
	return []kind{
		{"a tar archive", isTar, "unpack it, and give its folder"},
		{"a zip archive", begins("PK\x03\x04"), "unpack it, and give its folder"},
		{"packed by xz", begins("\xfd7zXZ\x00"), "unpack it: xz -d FILE"},
		{"packed by zstd", begins("\x28\xb5\x2f\xfd"), "unpack it: zstd -d FILE"},
		{"packed by bzip2", begins("BZh"), "unpack it: bzip2 -d FILE"},
		{"packed by gzip twice", begins("\x1f\x8b"), "unpack it: gzip -d FILE"},
		{"a binary journal", begins("LPKSHHRH"), "export it: journalctl --file FILE -o export > journal.txt"},
		{"the text of a serial console, where units have no times", consoleMark.Match, fullJournal},
		{"waagent.log, which has extensions and no units",
			has(`\A\s*\d{4}[-/]\d\d[-/]\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?Z? (?:INFO|VERBOSE|WARNING|ERROR) `), fullJournal},
		{"cloud-init-output.log, which has what scripts printed and no times", has(`(?m)^Cloud-init v\. ?\S+ running '`),
			"give /var/log/cloud-init.log of the same node"},
		{"the text of cloud-init analyze boot", has(`(?m)^-- Most Recent Boot Record --`),
			"print with: cloud-init analyze show, or give /var/log/cloud-init.log"},
		{"systemd's answer that the boot has not finished", has(`(?m)^Bootup is not yet finished`),
			"wait until systemctl list-jobs is empty; then " + fullDump},
		{"the text of journalctl -o verbose", has(`(?m)^ +_BOOT_ID=[0-9a-f]{32}$`), fullJournal},
		{"the graph of systemd-analyze dot, which has no times", has(`\A\s*digraph systemd `), fullDump},
		{"the text of systemd-analyze dump", has(`(?m)^-> Unit \S+:`), fullDump},
		{"the text of systemctl, which has no monotonic times", has(`(?m)^\s*(?:UNIT +LOAD +ACTIVE +SUB|[●○×] \S+\.service - )`), fullDump},
		{"messages of systemd without times", has(`(?m)^(?:Starting \S.*\.\.\.|Started \S.*\.|Reached target \S.*\.)$`), fullJournal},
		{"the answer of a journal without entries", has(`(?m)^-- No entries --\r?$`), fullJournal},
		{"a log of kubelet, which has no units", has(`\A\s*[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{6} `), fullJournal},
	}
}

// isTar finds the magic of a tar archive (POSIX.1-1988 and later, and GNU tar).
func isTar(data []byte) bool { return len(data) > 262 && string(data[257:262]) == "ustar" }

func begins(magic string) func([]byte) bool {
	return func(head []byte) bool { return bytes.HasPrefix(head, []byte(magic)) }
}

func has(text string) func([]byte) bool { return lazyregexp.New(text).Match }

// explained adds to an error of an unknown format what the file is, where that is known, and what to
// give instead.
func explained(err error, data []byte) error {
	for _, k := range kinds() {
		if k.sniff(data[:min(len(data), sniffed)]) {
			return fmt.Errorf("%w: this is %s; %s", err, k.what, k.how)
		}
	}
	return err
}
