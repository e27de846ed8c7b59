package dist

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// database is a copy of https://go.dev/doc/security/vuln/database with the entries that are given,
// of golang.org/x/sys: a module that kamino-agent is linked with.
func database(t *testing.T, entries ...string) string {
	t.Helper()
	dir := t.TempDir()
	const when = `"modified":"2026-01-01T00:00:00Z"`
	var known []string
	files := map[string]string{"index/db.json": "{" + when + "}"}
	for _, e := range entries {
		known = append(known, `{"id":"`+e+`",`+when+`}`)
		files["ID/"+e+".json"] = `{"schema_version":"1.3.1","id":"` + e + `",` + when + `,"published":"2026-01-01T00:00:00Z",
			"summary":"planted","details":"planted","database_specific":{"url":"https://example.com"},
			"affected":[{"package":{"name":"golang.org/x/sys","ecosystem":"Go"},"ranges":[{"type":"SEMVER","events":[{"introduced":"0"}]}],
			"ecosystem_specific":{"imports":[{"path":"golang.org/x/sys/unix"}]}}]}`
	}
	files["index/vulns.json"] = "[" + strings.Join(known, ",") + "]"
	files["index/modules.json"] = `[{"path":"golang.org/x/sys","vulns":` + files["index/vulns.json"] + `}]`
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestVulncheck: what `make lint` runs with VULNDB reads a database by its path, is content with
// one that knows of nothing, and fails with one that has an entry for a linked module.
func TestVulncheck(t *testing.T) {
	for name, c := range map[string]struct {
		dir   string
		fails bool
		says  string
	}{
		"nothing known": {dir: database(t), says: "No vulnerabilities found"},
		"a known one":   {dir: database(t, "GO-2026-9999"), fails: true, says: "GO-2026-9999"},
		"no database":   {dir: t.TempDir(), fails: true, says: "index/db.json"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := exec.CommandContext(t.Context(), "../../.ci/vulncheck", c.dir, "kamino-agent").CombinedOutput()
			if (err != nil) != c.fails || !strings.Contains(string(out), c.says) {
				t.Errorf("%v:\n%s", err, out)
			}
		})
	}
}
