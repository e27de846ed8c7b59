package read

import (
	"strings"
	"testing"
	"testing/fstest"
)

// TestFolderNamesWhatItLeavesOut: a folder with two reports is refused by their names, and what is not
// read of a folder is named.
func TestFolderNamesWhatItLeavesOut(t *testing.T) {
	log := func(host string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte(strings.ReplaceAll(hungLog(), " n1 ", " "+host+" "))}
	}
	const journal = "sos_commands/logs/journalctl_--no-pager_--boot"
	empty := &fstest.MapFile{}
	for name, tc := range map[string]struct {
		files fstest.MapFS
		err   string
		note  string
	}{
		"two reports":                {fstest.MapFS{"a/" + journal: log("n1"), "b/" + journal: log("n2")}, `2 reports in it, "a" and "b"`, ""},
		"two kinds":                  {fstest.MapFS{"a/" + journal: log("n1"), "b/var_log/messages": log("n2")}, `2 reports in it, "a" and "b"`, ""},
		"a folder inside a report":   {fstest.MapFS{journal: log("n1"), "b/var_log/messages": log("n2")}, "", ""},
		"a journal beside a report":  {fstest.MapFS{"a/" + journal: log("n1"), "j2.txt": log("n2"), "a.sha256": {Data: []byte("00 a")}}, "", `left out, because beside the report in "a": "j2.txt"`},
		"a folder beside a journal":  {fstest.MapFS{"j.txt": log("n1"), "sub/j2.txt": log("n2")}, "", `left out: what is in the folders "sub"`},
		"an empty file":              {fstest.MapFS{"j.txt": log("n1"), "dmesg": empty}, "", `left out, because empty: "dmesg"`},
		"many empty files":           {fstest.MapFS{"j.txt": log("n1"), "a": empty, "b": empty, "c": empty, "d": empty}, "", `"a", "b", "c" and 1 more`},
		"nothing but an empty file":  {fstest.MapFS{"dmesg": empty}, "no boot recognised", ""},
		"nothing but folders":        {fstest.MapFS{"a/j.txt": log("n1"), "b/j.txt": log("n2")}, `its folders were not looked into: "a", "b"`, ""},
		"a report with a log only":   {fstest.MapFS{"sos_commands/logs/x": empty, "var/log/syslog": log("n1")}, "", ""},
		"a report with one of RHEL":  {fstest.MapFS{"sos_commands/logs/x": empty, "var/log/messages": log("n1")}, "", ""},
		"two machines in one report": {fstest.MapFS{"sos_commands/logs/x": empty, "var/log/syslog": log("n1"), "var/log/messages": log("n2")}, "", `"var/log/messages" was skipped`},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := Dir(tc.files)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("read with %v, want %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if notes := strings.Join(c.Notes, "\n"); c.Host.Name != "n1" || !strings.Contains(notes, tc.note) || tc.note == "" && strings.Contains(notes, "left out") {
				t.Errorf("host %s, notes do not say %q:\n%s", c.Host.Name, tc.note, notes)
			}
		})
	}
}
