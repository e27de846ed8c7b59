package e2e

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kamino.dev/kamino"
	"kamino.dev/kamino/lab/labtest"
)

// formerCommit is the last version that kept leases and seal pods where --namespace said, and asked
// for receipts without a nonce.
const formerCommit = "7ad0ffa6079db7e486ff974e767704612d6465f0"

// TestUpgradeInTheMiddle: a process of the former version is killed with SIGKILL in the middle of a
// run. This version adopts the run from the lease, the marks and the images that the former one
// wrote, and finishes it; then the former one leaves the pool alone.
func TestUpgradeInTheMiddle(t *testing.T) {
	t.Parallel()
	former := labtest.BuildAt(t, formerCommit, "./cmd/kamino")
	for name, at := range map[string]moment{
		"blocked":  {"drain", kamino.StepActed, "block"},
		"sealing":  {"seal", kamino.StepActed, "seal the disk"},
		"off":      {"stop", kamino.StepDone, ""},
		"building": {"image", kamino.StepWaiting, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPool(t, 1)
			donor, model := p.get(p.node(0)), p.model()
			// It reads SKUs of the subscription, which the shipped role does not allow.
			owner := map[string]string{"AZURE_CLIENT_ID": shared.Environment()["KAMINO_LAB_OPERATOR_ID"]}
			killed := call{program: former, env: owner, onLine: func(line logLine, process *os.Process) {
				if at.is(line) {
					_ = process.Signal(syscall.SIGKILL) // it may have ended already, which its exit code tells
				}
			}}.run(t, formerArgs(donor.Name)...)
			if killed.code != -1 {
				t.Fatalf("the former version ended with exit code %d before %+v:\n%s", killed.code, at, killed.log)
			}
			run := p.holder(metav1.NamespaceSystem)
			if run == "" {
				t.Fatalf("no run holds the former lease:\n%s", killed.log)
			}

			r := kaminoRun(t, updateArgs(donor.Name)...).mustSucceed(t)
			if r.Run != run || r.Donor != donor.Name || r.Version != kamino.VersionName(time.Now()) || !r.Changed {
				t.Errorf("run %s of the former version became %+v", run, r.Result)
			}
			p.expectSame(donor, p.get(donor.Name))
			p.expectRunning(0)
			p.expectFree()
			if now := p.model(); now == model || !strings.Contains(now, kamino.DefinitionName(p.name)) {
				t.Errorf("the model is %s", now)
			}
			if lease := p.lease(kamino.SystemNamespace); lease == nil || !strings.Contains(lease.Annotations["kamino.dev/ledger"], r.Version) {
				t.Errorf("the lease in %s is %v", kamino.SystemNamespace, lease)
			}
			again := call{program: former, env: owner}.run(t, formerArgs(donor.Name)...)
			if again.code == 0 || !strings.Contains(again.log+again.out, "newer kamino") {
				t.Errorf("the former version, run again: exit code %d\n%s", again.code, again.log)
			}
			p.expectSame(donor, p.get(donor.Name))
		})
	}
}

// lease is that of the pool in a namespace; nil when there is none.
func (p *pool) lease(namespace string) *coordinationv1.Lease {
	p.Helper()
	leases, err := p.lab.Client.CoordinationV1().Leases(namespace).List(p.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=kamino"})
	if err != nil {
		p.Fatal(err)
	}
	for i := range leases.Items {
		if strings.EqualFold(leases.Items[i].Annotations["kamino.dev/pool"], p.id) {
			return &leases.Items[i]
		}
	}
	return nil
}

// holder is the run that holds the pool's lease there; "" when it is free.
func (p *pool) holder(namespace string) string {
	p.Helper()
	if lease := p.lease(namespace); lease != nil && lease.Spec.HolderIdentity != nil {
		return *lease.Spec.HolderIdentity
	}
	return ""
}
