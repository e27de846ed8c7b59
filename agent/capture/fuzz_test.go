package capture

import (
	"os"
	"path/filepath"
	"testing"

	"kamino.dev/kamino/boot"
)

// FuzzSources: whatever cloud-init, the extensions and the Azure agent wrote, the record is valid, and so it is
// written.
func FuzzSources(f *testing.F) {
	root := f.TempDir()
	names := []string{"var/log/azure/x/events/1.json", "var/log/azure/cluster-provision.log", "var/log/waagent.log", "run/cloud-init/status.json", "run/cloud-init/result.json", "var/log/cloud-init.log"}
	for _, name := range names {
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755); err != nil {
			f.Fatal(err)
		}
	}
	f.Add([]byte(`{"Timestamp":"2030-01-01 00:00:01.000","OperationId":"9999-01-01 00:00:00.000","TaskName":"a"}`),
		[]byte("--arg Timestamp '2030-01-01 00:00:01' --arg OperationId '2030-01-01T00:00:02Z' --arg TaskName a\n"),
		[]byte("2030-01-01T00:00:01Z INFO ExtHandler [A.B-1.0] Enable extension: [x]\n2030-01-01T00:00:02Z INFO ExtHandler [A.B-1.0] Command: x\n"),
		[]byte(`{"v1":{"stage":null,"init":{"start":1.5,"finished":99999999999},"modules-final":{"start":1e300}}}`),
		[]byte(`{"v1":{"datasource":"x","errors":["y"]}}`),
		[]byte("2030-01-01 00:00:05,000 - util.py[DEBUG]: Cloud-init v. 23.4.4 running 'init-local' at x. Up 5.00 seconds.\n"))
	o := Options{Root: root}.complete()
	f.Fuzz(func(t *testing.T, event, trace, agent, status, result, log []byte) {
		for i, data := range [][]byte{event, trace, agent, status, result, log} {
			if err := os.WriteFile(filepath.Join(root, names[i]), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		c := &boot.Capture{Schema: boot.Schema, Manager: boot.Manager{Userspace: 1e6, Finish: 60e6}}
		o.cloudInit(c)
		o.extensions(c)
		if err := c.Validate(); err != nil {
			t.Error(err)
		}
	})
}
