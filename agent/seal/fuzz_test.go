package seal

import (
	"bytes"
	"os"
	"testing"

	"kamino.dev/kamino/agent/disk/disktest"
)

// FuzzReceipt: whatever stands where the receipt is, it is refused, or its own hash fits.
func FuzzReceipt(f *testing.F) {
	d := disktest.New(f, map[string]string{ReceiptPath: ""})
	f.Add([]byte(`{"apiVersion":"kamino.dev/v1alpha1","kind":"Receipt","run":"r1","hash":"sha256:00"}`))
	f.Add([]byte(`{"rules":null,"unknown":{"mode":"refuse"}}`))
	f.Add([]byte("["))
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(d.Host(ReceiptPath), data, 0o600); err != nil {
			t.Fatal(err)
		}
		r, ok, err := ReadReceipt(d)
		if !ok {
			t.Fatal("there is one")
		}
		if sum, serr := r.sum(); err == nil && (serr != nil || sum != r.Hash) {
			t.Errorf("%q is taken for a receipt", data)
		}
	})
}

// FuzzJournal: a torn or damaged journal is read as far as it goes, and what is read can be written
// and read again.
func FuzzJournal(f *testing.F) {
	d := disktest.New(f, map[string]string{journalPath: ""})
	seed, err := encodeOps([]op{{Rule: "a", Path: "etc/\xff", Aside: asideDir + "/000001"}, {Rule: "b", Path: "x", Put: true, VM: "v"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add([]byte(`{"rule":"a","path":{"bytes":"/w=="}}` + "\n" + `{"rule":`))
	f.Add([]byte("\n\nnull\n[]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(d.Host(journalPath), data, 0o600); err != nil {
			t.Fatal(err)
		}
		ops, err := readJournal(d)
		if err != nil {
			return // a line of more than a megabyte
		}
		again, err := encodeOps(ops)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(d.Host(journalPath), again, 0o600); err != nil {
			t.Fatal(err)
		}
		back, err := readJournal(d)
		if err != nil || len(back) != len(ops) {
			t.Fatalf("%q: %d changes become %d, %v", data, len(ops), len(back), err)
		}
		for i := range ops {
			if ops[i] != back[i] {
				t.Errorf("%q: %+v becomes %+v", data, ops[i], back[i])
			}
		}
	})
}

// FuzzEdits: no content breaks an edit of the table, and none of them makes a file much larger than
// it was.
func FuzzEdits(f *testing.F) {
	donor := Facts{Host: donorHost, Addresses: []string{"10.0.0.7"}, MACs: []string{"00:0d:3a:11:22:33"}}
	for _, seed := range []string{"", "127.0.1.1 x\n", "KUBELET_EXTRA_ARGS=\"--node-ip 10.0.0.7 --hostname-override=x\"\n", "u:$6$x$y:1::\n", "network:\n  version: 2\n  ethernets: {eth0: {match: {macaddress: '00:0d:3a:11:22:33'}}}\n",
		`{"data":{"snap":1}}`, "nodeIP: 10.0.0.7\n", "ARRAY /dev/md0 UUID=x\n", "HWADDR=x\n", "/swapfile none swap sw 0 0\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, r := range Table() {
			if r.Only != nil {
				_ = r.Only(data)
			}
			if r.Change == nil {
				continue
			}
			if out := r.Change(bytes.Clone(data), donor); len(out) > 2*len(data)+256 {
				t.Errorf("rule %s makes %d bytes of %d: %q", r.ID, len(out), len(data), data)
			}
		}
	})
}
