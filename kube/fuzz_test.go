package kube

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"

	"kamino.dev/kamino/internal/hostile"
)

// FuzzLease: whatever stands in the annotations of a lease is read or refused, and what is read has
// nothing that a terminal obeys.
func FuzzLease(f *testing.F) {
	f.Add("1", `{"donor":"n1","step":"image","version":"2026.11.20","started":"2026-11-20T00:00:00Z","failure":"x"}`,
		`{"original":{"image":"i","saved":{}},"wrote":{"image":"i","seen":true},"past":[{"run":"r","seconds":31}],"boots":[61.5],"phases":[{"kernel":2.1}]}`)
	f.Add("2", "{}", "{}")
	f.Add("1", `{"donor":"\u001b"}`, "null")
	f.Fuzz(func(t *testing.T, format, record, ledger string) {
		var l coordinationv1.Lease
		l.Annotations = map[string]string{annotationFormat: format, annotationPool: record, annotationProcess: ledger, annotationRecord: record, annotationLedger: ledger}
		read, err := readLease(&l)
		if err != nil {
			return
		}
		_ = read.Unfinished(read.Renewed)
		for _, bad := range hostile.Find(read) {
			t.Error(bad)
		}
	})
}
