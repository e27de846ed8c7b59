package firstboot

import (
	"log/slog"
	"os"
	"testing"

	"kamino.dev/kamino/agent/disk/disktest"
	"kamino.dev/kamino/agent/nodeconfig"
	"kamino.dev/kamino/agent/userdata"
)

// FuzzState: the records of the machine and of its configuration, and sshd's configuration, whatever is in them: a
// record that cannot be read is an error or that of another machine.
func FuzzState(f *testing.F) {
	const sshd = sshDir + "/sshd_config"
	d := disktest.New(f, map[string]string{StatePath: "", vmPath: "", sshd: ""})
	m := &Machine{Disk: d, Log: slog.New(slog.DiscardHandler)}
	f.Add([]byte(`{"generation":3,"hash":"sha256:00","status":"Applied","offered":{"hash":"x"},"trial":{"begun":1},"taints":[{"key":"a"}]}`), []byte(`{"vmId":"a1b2c3d4-e5f6-4711-8899-aabbccddeeff"}`), []byte("HostKey /etc/ssh/ssh_host_rsa_key\nHostKeyAlgorithms -ssh-rsa\n"))
	f.Add([]byte("null"), []byte("{"), []byte("HostKeyAlgorithms =\"\"\nHostKey\n"))
	f.Fuzz(func(t *testing.T, state, vm, ssh []byte) {
		for name, data := range map[string][]byte{StatePath: state, vmPath: vm, sshd: ssh} {
			if err := os.WriteFile(d.Host(name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if s, err := ReadState(d); err == nil {
			doc := nodeconfig.Document{Data: state}
			if c := (&userdata.NodeConfig{Generation: s.Generation}); s.Newer(c) == nil {
				t.Errorf("generation %d is newer than itself", s.Generation)
			}
			_ = s.Refused(doc.Hash())
		}
		v := verdict{vm: "a1b2c3d4-e5f6-4711-8899-aabbccddeeff"}
		if err := m.readOwner(&v); err != nil || v.mine() && v.owner.VMID == "" && v.owner.Instance == "" {
			t.Errorf("%q: %+v, %v", vm, v, err)
		}
		_ = needsOtherKeys(d)
	})
}
