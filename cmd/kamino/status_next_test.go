package main

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kamino.dev/kamino"
	"kamino.dev/kamino/poolstate"
	"kamino.dev/kamino/view"
)

// TestNextRun: what starts runs is read from the cluster, and told for the pools that it is for.
func TestNextRun(t *testing.T) {
	const prototypes, jobs = "/apis/kamino.dev/v1alpha1/nodeprototypes", "/apis/batch/v1/cronjobs"
	cron := func(name, rest, args string) string {
		return `{"metadata":{"name":"` + name + `","namespace":"k"},"spec":{"schedule":"0 3 * * *",` + rest + `"jobTemplate":{"spec":{"template":{"spec":{"containers":[{"args":[` + args + `]}]}}}}}}`
	}
	proto := func(spec, status string) string {
		return `{"items":[{"metadata":{"name":"one","generation":2},"spec":{` + spec + `},"status":{` + status + `}}]}`
	}
	const nothing = "nothing in the cluster starts one: no NodePrototype of the pool, no CronJob with kamino auto-update"
	for _, tt := range []struct {
		name, prototypes, jobs string // a body, or a status of three digits
		want                   []string
	}{
		{"nobody", "404", `{}`, []string{nothing}},
		{"a prototype that waits", proto(`"pool":"pool1","window":{"days":["Sat","Sun"],"start":"02:00","end":"05:00","timeZone":"Europe/Berlin"}`,
			`"nextRun":"2026-11-21T01:00:00Z","conditions":[{"type":"Ready","reason":"OutsideWindow","message":"waiting","observedGeneration":2}]`), `{}`,
			[]string{"not before 2026-11-21T01:00:00Z, by NodePrototype one, Sat, Sun 02:00 to 05:00 Europe/Berlin; OutsideWindow: waiting"}},
		{"found by labels", proto(`"nodeSelector":{"a":"b"}`, `"pool":"pool1","conditions":[{"type":"Ready","reason":"UpToDate","observedGeneration":2}]`), `{}`,
			[]string{"by NodePrototype one, at any time; UpToDate"}},
		{"no controller", proto(`"pool":"pool1"`, ``), `{}`, []string{"by NodePrototype one, at any time; no controller has looked at it yet"}},
		{"changed just now", proto(`"pool":"pool1"`, `"conditions":[{"type":"Ready","reason":"UpToDate","observedGeneration":1}]`), `{}`,
			[]string{"by NodePrototype one, at any time; no controller has looked at its newest spec yet"}},
		{"suspended", proto(`"pool":"pool1","suspend":true`, `"nextRun":"2026-11-21T01:00:00Z","conditions":[{"type":"Ready","reason":"PromotionFailed","message":"x","observedGeneration":2}]`), `{}`,
			[]string{"by NodePrototype one, at any time; suspended"}},
		{"another's", proto(`"pool":"pool2"`, ``), `{}`, []string{nothing}},
		{"CronJobs", "404", `{"items":[` + strings.Join([]string{
			cron("all", `"timeZone":"Asia/Tokyo",`, `"auto-update"`),
			strings.Replace(cron("this", ``, `"auto-update","--pool","pool1"`), `"spec"`, `"status":{"lastScheduleTime":"2026-11-20T03:00:00Z"},"spec"`, 1),
			cron("off", `"suspend":true,`, `"auto-update","--pool=pool1"`), cron("other", ``, `"auto-update","--pool","pool2"`), cron("backup", ``, `"tar"`)}, ",") + `]}`,
			[]string{`by CronJob k/all, schedule "0 3 * * *" in Asia/Tokyo; never started yet`, `by CronJob k/this, schedule "0 3 * * *"; last started 2026-11-20T03:00:00Z`,
				`by CronJob k/off, schedule "0 3 * * *"; suspended`}},
		{"as the chart vmss-prototype names a pool", "404", `{"items":[` + cron("this", ``, `"--log-prefix","auto-update","auto-update","--target-vmss","pool1"`) + "," +
			cron("other", ``, `"--log-prefix","auto-update","auto-update","--target-vmss","pool2"`) + "]}", []string{`by CronJob k/this, schedule "0 3 * * *"; never started yet`}},
		{"ALL", "404", `{"items":[` + cron("all", ``, `"auto-update","--pool","ALL"`) + "]}", []string{`by CronJob k/all, schedule "0 3 * * *"; never started yet`}},
		{"a list", "404", `{"items":[` + cron("two", ``, `"auto-update","--pool=pool2,pool1"`) + "," + cron("words", ``, `"auto-update","--new-flag=x","--target-vmss","pool2","pool1"`) + "," + cron("others", ``, `"auto-update","--pool=pool2,pool3"`) + "]}",
			[]string{`by CronJob k/two, schedule "0 3 * * *"; never started yet`, `by CronJob k/words, schedule "0 3 * * *"; never started yet`}},
		{"a shell's text", "404", `{"items":[` + cron("sh", ``, `"-c","exec kamino auto-update --pool pool1"`) + "]}",
			[]string{`by CronJob k/sh, schedule "0 3 * * *"; may be for another pool: a shell starts kamino auto-update; never started yet`}},
		{"a pool of the environment", "404", `{"items":[` + cron("env", ``, `"auto-update","--pool=$(POOL)"`) + "]}",
			[]string{`by CronJob k/env, schedule "0 3 * * *"; may be for another pool: the environment names pool $(POOL); never started yet`}},
		{"a dry run", "404", `{"items":[` + cron("dry", ``, `"auto-update","--dry-run"`) + "," + cron("no", ``, `"auto-update","--dry-run=false"`) + "]}",
			[]string{`by CronJob k/no, schedule "0 3 * * *"; never started yet`}},
		{"another program's word", "404", `{"items":[` + cron("other", ``, `"helm","auto-update"`) + "," + strings.Replace(cron("more", ``, `"auto-update"`), `"args"`, `"command":["/bin/helm"],"args"`, 1) + "]}", []string{nothing}},
		{"the program by its path", "404", `{"items":[` + strings.Replace(cron("path", ``, `"auto-update","--pool=pool1"`), `"args"`, `"command":["/tini","--","/kamino"],"args"`, 1) + "]}", []string{`by CronJob k/path, schedule "0 3 * * *"; never started yet`}},
		{"an image that will be too old", proto(`"pool":"pool1"`, `"nextRun":"2026-11-21T01:00:00Z","conditions":[{"type":"Ready","reason":"UpToDate","observedGeneration":2}]`), `{}`,
			[]string{"at the latest 2026-11-21T01:00:00Z, by NodePrototype one, at any time; UpToDate"}},
		{"not allowed", "403", "403", []string{"unknown: list NodePrototypes: nodeprototypes is forbidden", "unknown: list CronJobs: cronjobs is forbidden"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, known := map[string]string{prototypes: tt.prototypes, jobs: tt.jobs}[r.URL.Path]
				w.Header().Set("Content-Type", "application/json")
				switch {
				case !known || body == "404":
					w.WriteHeader(http.StatusNotFound)
				case body == "403":
					w.WriteHeader(http.StatusForbidden)
					_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"` + path.Base(r.URL.Path) + ` is forbidden","reason":"Forbidden","code":403}`))
				default:
					_, _ = w.Write([]byte(body))
				}
			}))
			defer server.Close()
			file := filepath.Join(t.TempDir(), "config")
			if err := os.WriteFile(file, []byte(`{"clusters":[{"name":"c","cluster":{"server":"`+server.URL+`"}}],"contexts":[{"name":"c","context":{"cluster":"c"}}],"current-context":"c"}`), 0o600); err != nil {
				t.Fatal(err)
			}
			a := newApp(ioStreams{Out: new(bytes.Buffer), Err: new(bytes.Buffer)}, func(string) string { return "" }, func(int) {})
			a.global.kubeconfig = file
			pools := []poolstate.PoolStatus{{Pool: "/subscriptions/s/pool1", Name: "pool1"}}
			a.addNextRuns(t.Context(), pools)
			got := view.NextRuns(pools[0])
			if !slices.EqualFunc(got, tt.want, strings.HasPrefix) || tt.prototypes != "403" && !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestNextRunShown: the table and the page tell it; metrics have no place for it, and nothing is
// read for them.
func TestNextRunShown(t *testing.T) {
	const want = "not before 2026-11-21T02:00:00Z, by NodePrototype pool1, Sat, Sun 02:00 to 05:00 UTC; OutsideWindow: waiting for the window"
	for format, told := range map[string]bool{"table": true, "html": true, openMetrics: false} {
		w := newFakeWorld()
		history(w)
		out, _, _ := w.kamino(t, "status", "-o", format)
		if strings.Contains(out, want) != told {
			t.Errorf("%s: %s", format, out)
		}
	}
	pools := []poolstate.PoolStatus{{Name: "pool1"}}
	a := &app{starters: func(context.Context, *app) []starter { return nil }}
	a.addNextRuns(t.Context(), pools)
	if pools[0].NextRuns == nil {
		t.Error("a pool that nothing starts a run of looks as one of which nobody asked")
	}
}

// TestNoImage: the image that the next node boots from does not exist. Status and plan say so, with
// what to type.
func TestNoImage(t *testing.T) {
	w := newFakeWorld()
	p := stale(w)
	p.Refusals = []kamino.Refusal{{Code: kamino.CodeNoImage, Field: "ImageId", Value: "ami-1", Why: "it does not exist", Do: "kamino rollback --pool POOL --to VERSION"}}
	out, errs, _ := w.kamino(t, "status")
	if !strings.Contains(out, "cannot boot: its image "+p.Model.Image+" does not exist") || !strings.Contains(out, p.Refusals[0].Do) {
		t.Errorf("status:\n%s%s", out, errs)
	}
	if out, errs, _ = w.kamino(t, "plan"); !strings.Contains(out, p.Refusals[0].Do) {
		t.Errorf("plan:\n%s%s", out, errs)
	}
}
