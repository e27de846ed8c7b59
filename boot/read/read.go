// Package read makes a [boot.Capture] from whatever somebody has: our own document, a `systemctl
// show` dump, a `systemd-analyze plot`, a journal export, cloud-init's logs, a sosreport, and of text
// what systemd-analyze, cloud-init analyze and journalctl print and what syslog writes. It recognises
// them by their content.
package read

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"kamino.dev/kamino/boot"
)

// ErrUnknownFormat reports an input that no reader recognises.
var ErrUnknownFormat = errors.New("no boot recognised")

var errEmpty = errors.New("empty input")

// format is one kind of input. Sniff sees the first bytes without leading white space.
type format struct {
	name  string
	sniff func(head []byte) bool
	read  func(data []byte) (*boot.Capture, error)
}

var (
	record        = format{"capture", sniffCapture, readCapture}
	journalExport = format{"journal", sniffJournalExport, readJournalExport}
	cloudInitLog  = format{"cloud-init-log", sniffCloudInitLog, readCloudInitLog}
	cloudInitText = format{"text of cloud-init analyze", sniffCloudInitText, readCloudInitText}
	analyzeTexts  = format{"text of systemd-analyze", sniffAnalyzeText, readAnalyzeText}
)

// formats are tried in order; the sniffers exclude each other except where a comment says so.
func formats() []format {
	return []format{
		{"plot-svg", sniffSVG, readPlotSVG},
		{"journal", sniffJournalJSON, readJournalJSON},
		journalExport,
		{"plot-json", sniffPlotJSON, readPlotJSON},
		{"cloud-init-dump", sniffCloudInitDump, readCloudInitDump},
		record, // any other JSON object: its error names the schema
		{boot.SourceShow, sniffShow, readShow},
		cloudInitLog,
		cloudInitText,
		{"log", sniffLog, readLog},
		analyzeTexts, // last: they may stand among other text
	}
}

// Bytes recognises the format of data by its content, also of what gzip packed, and reads the boot in
// it. The error names the format that failed, or is ErrUnknownFormat, and then names what no reader
// takes where that is known.
func Bytes(data []byte) (*boot.Capture, error) {
	data, err := unpack(data)
	if err != nil {
		return nil, err
	}
	data = fromUTF16(data)
	if isTar(data) { // else the text of one of its files would be taken for all of it
		return nil, explained(fmt.Errorf("read boot: %w", ErrUnknownFormat), data)
	}
	c, err := as(data, formats()...)
	if errors.Is(err, ErrUnknownFormat) {
		return nil, explained(err, data)
	}
	if err == nil && (slices.Contains(c.Sources, "log") || slices.Contains(c.Sources, "cloud-init-show") ||
		slices.Contains(c.Sources, "cloud-init-blame")) {
		err = besides(c, data)
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// besides adds what other commands printed into the same text, as people paste them into an issue.
func besides(c *boot.Capture, data []byte) error {
	for _, f := range []format{cloudInitText, analyzeTexts} {
		more, err := as(data, f)
		if err != nil || slices.Contains(c.Sources, more.Sources[0]) { // there is none, or it was read already
			continue
		}
		if err := c.Merge(more); err != nil {
			return fmt.Errorf("read the texts in one file: %w", err)
		}
	}
	return nil
}

// Record reads a capture of kamino-agent. Whoever knows what he has is not linked with the other
// readers.
func Record(data []byte) (*boot.Capture, error) { return as(data, record) }

// Journal reads what `journalctl -b -o export` prints.
func Journal(data []byte) (*boot.Capture, error) { return as(data, journalExport) }

// CloudInitLog reads cloud-init.log.
func CloudInitLog(data []byte) (*boot.Capture, error) { return as(data, cloudInitLog) }

// sniffed is how much of a file its format is told by.
const sniffed = 64 << 10

func as(data []byte, formats ...format) (*boot.Capture, error) {
	if len(data) > boot.MaxDocument {
		return nil, fmt.Errorf("read boot: %d bytes, more than the limit of %d; cut the journal to one boot with `journalctl -b`",
			len(data), boot.MaxDocument)
	}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	head := bytes.TrimLeft(data, " \t\r\n")
	if len(head) == 0 {
		return nil, fmt.Errorf("read boot: %w", errEmpty)
	}
	head = head[:min(len(head), sniffed)]
	for _, f := range formats {
		if !f.sniff(head) {
			continue
		}
		c, err := f.read(data)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", f.name, err)
		}
		c.Schema = boot.Schema
		if len(c.Sources) == 0 {
			c.Sources = []string{f.name}
		}
		c.Tidy()
		if err := c.Validate(); err != nil {
			return nil, fmt.Errorf("read %s: %w", f.name, err)
		}
		return c, nil
	}
	return nil, fmt.Errorf("read boot: %w", ErrUnknownFormat)
}

// From reads r to its end, refusing more than MaxDocument bytes, and then as Bytes does.
func From(r io.Reader) (*boot.Capture, error) {
	data, err := io.ReadAll(io.LimitReader(r, boot.MaxDocument+1))
	if err != nil {
		return nil, fmt.Errorf("read boot: %w", err)
	}
	return Bytes(data)
}

func sniffCapture(head []byte) bool { return head[0] == '{' }

func readCapture(data []byte) (*boot.Capture, error) {
	var c boot.Capture
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, jsonError(err)
	}
	return &c, c.Validate()
}

// jsonError says where a document stops making sense.
func jsonError(err error) error {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Errorf("not a whole JSON document (byte %d: %w); was the file cut off?", syntax.Offset, err)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("not a whole JSON document (%w); was the file cut off?", err)
	}
	return err
}
