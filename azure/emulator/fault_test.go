package emulator

import (
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Point 11: faults; every lie of the crash harness can be told.

func (w *world) dropped(method, path, body string) {
	w.Helper()
	if a, err := w.try(method, path, body); err == nil {
		w.Fatalf("%s %s was answered: %d", method, path, a.status)
	}
}

func TestReplyFaultAnswersTheNthCallOnly(t *testing.T) {
	w := onePool(t, instant)
	w.s.AddFault(Fault{Method: "get", Path: "/Subscriptions/*/resourceGroups/*/**/POOL1", Nth: 2, Times: 2, Kind: Reply, Status: 500})
	var got []int
	for range 5 {
		got = append(got, w.do(http.MethodGet, poolPath, "").status)
	}
	if got[0] != 200 || got[1] != 500 || got[2] != 500 || got[3] != 200 || got[4] != 200 {
		t.Fatalf("statuses %v", got)
	}
	if f := w.s.Faults()[0]; f.Seen != 5 || f.Hit != 2 {
		t.Fatalf("counts %+v", f)
	}
	w.must(200, http.MethodGet, poolPath+"/virtualMachines/0", "")
}

func TestThrottlingCarriesRetryAfterAndDetails(t *testing.T) {
	w := onePool(t, instant)
	w.s.AddFault(Fault{Method: "PATCH", Kind: Reply, Status: 429, RetryAfter: 20 * time.Minute})
	a := w.must(429, http.MethodPatch, poolPath, `{"tags":{"a":"b"}}`)
	if a.header.Get("Retry-After") != "1200" || a.code() != "OperationNotAllowed" || text(items(a.body, "error", "details")[0], "code") != "TooManyRequests" {
		t.Fatalf("%v %v", a.header, a.body)
	}
	if has(w.model(), "tags", "a") {
		t.Error("it was done all the same")
	}
	w.s.RemoveFault("")
	w.s.AddFault(Fault{Method: "PATCH", Times: -1, Kind: Reply, Status: 403})
	w.refused(403, "AuthorizationFailed", "'Microsoft.Compute/virtualMachineScaleSets/write'", http.MethodPatch, poolPath, `{}`)
	w.refused(403, "AuthorizationFailed", "'Microsoft.Compute/virtualMachineScaleSets/write'", http.MethodPatch, poolPath, `{}`)
}

func TestConflictAndPreconditionFaults(t *testing.T) {
	w := onePool(t, instant)
	w.s.AddFault(Fault{Method: "PATCH", Kind: Reply, Status: 409})
	w.s.AddFault(Fault{Method: "PATCH", Nth: 2, Kind: Reply, Status: 412})
	w.refused(409, "Conflict", "", http.MethodPatch, poolPath, `{}`)
	w.refused(412, "PreconditionFailed", "", http.MethodPatch, poolPath, `{}`)
	w.must(200, http.MethodPatch, poolPath, `{}`)
}

func TestDroppedConnections(t *testing.T) {
	w := onePool(t, instant)
	before, after := compute+"/snapshots/before", compute+"/snapshots/after"
	w.s.AddFault(Fault{Path: before, Method: "PUT", Kind: DropBefore})
	w.s.AddFault(Fault{Path: after, Method: "PUT", Kind: DropAfter})
	w.dropped(http.MethodPut, before, w.snapshotDoc("0"))
	w.dropped(http.MethodPut, after, w.snapshotDoc("0"))
	w.must(404, http.MethodGet, before, "")
	w.must(200, http.MethodGet, after, "")
}

func TestFalseReplies(t *testing.T) {
	w := onePool(t, nil)
	fails, succeeds := compute+"/snapshots/fails", compute+"/snapshots/succeeds"
	w.s.AddFault(Fault{Path: fails, Method: "PUT", Kind: FalseFailure})
	w.s.AddFault(Fault{Path: succeeds, Method: "PUT", Kind: FalseSuccess})
	w.must(500, http.MethodPut, fails, w.snapshotDoc("0"))
	lie := w.must(202, http.MethodPut, succeeds, w.snapshotDoc("0"))
	if text(lie.body, "name") != "succeeds" {
		t.Errorf("body %v", lie.body)
	}
	w.clock.Advance(time.Minute)
	if got := text(w.poll(lie).body, "status"); got != "Succeeded" {
		t.Errorf("the operation is %s", got)
	}
	w.must(200, http.MethodGet, fails, "")
	w.must(404, http.MethodGet, succeeds, "")
	// Without latency too.
	quick := onePool(t, instant)
	quick.s.AddFault(Fault{Method: "DELETE", Kind: FalseSuccess})
	quick.must(200, http.MethodDelete, poolPath+"/virtualMachines/0", "")
	quick.must(200, http.MethodGet, poolPath+"/virtualMachines/0", "")
}

func TestOperationsThatEndBadly(t *testing.T) {
	for _, instantly := range []bool{true, false} {
		w := onePool(t, func(s *Server) {
			if instantly {
				instant(s)
			}
		})
		vm := poolPath + "/virtualMachines/"
		w.s.AddFault(Fault{Path: vm + "0/powerOff", Kind: FailOperation, Code: "InternalExecutionError", Message: "boom"})
		w.s.AddFault(Fault{Path: vm + "1/powerOff", Kind: FailOperation, OperationStatus: "Canceled", Code: "OperationPreempted"})
		w.s.AddFault(Fault{Path: vm + "2/powerOff", Kind: FailOperation, Committed: true})
		var begun []answer
		for _, id := range []string{"0", "1", "2"} {
			begun = append(begun, w.must(202, http.MethodPost, vm+id+"/powerOff", ""))
		}
		w.clock.Advance(5 * time.Minute)
		for n, want := range []struct{ status, code, power string }{
			{"Failed", "InternalExecutionError", PowerRunning}, {"Canceled", "OperationPreempted", PowerRunning}, {"Failed", "InternalServerError", PowerStopped},
		} {
			t.Run(want.status, func(t *testing.T) {
				got := w.poll(begun[n]).body
				if text(got, "status") != want.status || text(got, "error", "code") != want.code || w.s.Instances()[n].PowerState != want.power {
					t.Errorf("%d: %v, power %s", n, got, w.s.Instances()[n].PowerState)
				}
			})
		}
	}
}

func TestPollsThatLie(t *testing.T) {
	w := onePool(t, nil)
	vm := poolPath + "/virtualMachines/"
	w.s.AddFault(Fault{Path: vm + "0/powerOff", Kind: Poll, Status: 404, Count: -1})
	w.s.AddFault(Fault{Path: vm + "1/powerOff", Kind: Poll, Status: 403, Count: 2})
	w.s.AddFault(Fault{Path: vm + "2/powerOff", Kind: SlowOperation, Duration: time.Hour})
	lost := w.must(202, http.MethodPost, vm+"0/powerOff", "")
	forbidden := w.must(202, http.MethodPost, vm+"1/powerOff", "")
	slow := w.must(202, http.MethodPost, vm+"2/powerOff", "")
	w.clock.Advance(2 * time.Minute)
	for range 3 {
		if got := w.poll(lost).status; got != 404 {
			t.Errorf("lost operation: %d", got)
		}
	}
	if a, b, c := w.poll(forbidden).status, w.poll(forbidden).status, w.poll(forbidden).status; a != 403 || b != 403 || c != 200 {
		t.Errorf("forbidden polls: %d %d %d", a, b, c)
	}
	if got := text(w.poll(slow).body, "status"); got != "InProgress" {
		t.Errorf("slow operation is %s", got)
	}
	w.clock.Advance(time.Hour)
	if got := text(w.poll(slow).body, "status"); got != "Succeeded" {
		t.Errorf("slow operation is %s", got)
	}
	if w.instance("0").PowerState != PowerStopped {
		t.Error("the lost operation had no effect")
	}
	// A poll may also be hit by its own path.
	w.s.AddFault(Fault{Path: "**/operations/*", Kind: Reply, Status: 403})
	w.refused(403, "AuthorizationFailed", "'Microsoft.Compute/locations/operations/read'", http.MethodGet, slow.header.Get("Azure-AsyncOperation"), "")
}

func TestStaleReads(t *testing.T) {
	w := onePool(t, instant)
	path := compute + "/snapshots/s"
	w.s.AddFault(Fault{Method: "PUT", Path: path, Kind: Stale, Duration: 30 * time.Second})
	w.must(200, http.MethodPut, path, w.snapshotDoc("0"))
	w.must(404, http.MethodGet, path, "")
	if n := len(items(w.must(200, http.MethodGet, compute+"/snapshots", "").body, "value")); n != 0 {
		t.Errorf("the list shows %d", n)
	}
	w.clock.Advance(30 * time.Second)
	w.must(200, http.MethodGet, path, "")

	w.clock.Advance(time.Hour)
	w.must(200, http.MethodPatch, poolPath, `{"tags":{"a":"new"}}`)
	w.clock.Advance(5 * time.Second)
	w.s.AddFault(Fault{Method: "GET", Path: poolPath, Kind: Stale, Duration: time.Minute})
	w.s.AddFault(Fault{Method: "GET", Path: compute + "/snapshots", Kind: Stale})
	if tag := text(w.model(), "tags", "a"); tag != "" {
		t.Errorf("a stale read shows %q", tag)
	}
	if tag := text(w.model(), "tags", "a"); tag != "new" {
		t.Errorf("a fresh read shows %q", tag)
	}
	if n := len(items(w.must(200, http.MethodGet, compute+"/snapshots", "").body, "value")); n != 0 {
		t.Errorf("the stale list shows %d", n)
	}
}

func TestDelayedAndLateCalls(t *testing.T) {
	w := onePool(t, instant)
	path := compute + "/snapshots/s"
	w.s.AddFault(Fault{Method: "PUT", Path: path, Kind: Late, Duration: time.Minute})
	w.dropped(http.MethodPut, path, w.snapshotDoc("0"))
	w.must(404, http.MethodGet, path, "")
	w.clock.Advance(time.Minute)
	w.must(200, http.MethodGet, path, "")

	w.s.AddFault(Fault{Method: "DELETE", Path: path, Kind: Delay, Duration: time.Minute})
	body, done := "", make(chan answer)
	go func() {
		a, err := w.try(http.MethodDelete, path, body)
		if err != nil {
			t.Error(err)
		}
		done <- a
	}()
	for { // until the delayed call waits on the clock
		if _, waiting := w.clock.Next(); waiting {
			break
		}
		runtime.Gosched()
	}
	w.must(200, http.MethodGet, path, "")
	w.clock.Advance(time.Minute)
	if a := <-done; a.status != 200 {
		t.Errorf("delayed delete: %d", a.status)
	}
}

func TestFaultsOverHTTPAndTheLog(t *testing.T) {
	var numbers []int
	w := onePool(t, func(s *Server) {
		instant(s)
		s.OnRequest = func(r *http.Request) { numbers = append(numbers, RequestNumber(r)) }
	})
	id := text(w.must(200, http.MethodPost, "/_emulator/faults", `{"method":"PATCH","kind":"reply","status":409,"code":"Conflict"}`).body, "id")
	w.must(409, http.MethodPatch, poolPath, `{"tags":{"a":"b"}}`, "If-Match", `"1"`, "x-ms-correlation-request-id", "abc", "User-Agent", "tester/1")
	w.must(204, http.MethodDelete, "/_emulator/faults/"+id, "")
	w.must(400, http.MethodPost, "/_emulator/faults", `{}`)
	w.must(200, http.MethodPatch, poolPath, `{"tags":{"a":"b"}}`)
	log := w.s.Requests(0)
	if len(log) != 2 || len(numbers) != 2 || numbers[1] != 2 {
		t.Fatalf("log %+v, numbers %v", log, numbers)
	}
	first := log[0]
	if first.Seq != 1 || first.Status != 409 || first.Fault != id || first.IfMatch != `"1"` || first.CorrelationID != "abc" || first.UserAgent != "tester/1" ||
		first.APIVersion != "2026-04-01" || !strings.Contains(string(first.Body), `"tags"`) || !first.VirtualTime.Equal(w.clock.Now()) {
		t.Fatalf("entry %+v", first)
	}
	state := w.must(200, http.MethodGet, "/_emulator/state", "").body
	if len(items(state, "resources")) == 0 {
		t.Fatal("no state")
	}
	disk := "/_emulator/disks" + w.instance("0").ID
	w.must(200, http.MethodPatch, disk, `{"/a":"b","/etc/hosts":null}`)
	files := w.must(200, http.MethodGet, disk, "").body
	if files["/a"] != "b" || files["/etc/hosts"] != nil {
		t.Fatalf("files %v", files)
	}
	w.must(404, http.MethodGet, "/_emulator/disks/nope", "")
}
