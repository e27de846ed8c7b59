package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kamino.dev/kamino/boot"
)

// publishedBoot is one of the boots that the original shows.
func publishedBoot(name string) string {
	return filepath.Join("..", "..", "boot", "testdata", "published", name)
}

func readAll(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// bootRun runs `kamino boot …` without cloud and cluster.
func bootRun(t *testing.T, stdin string, args ...string) (out, errs string, code int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	a := newApp(ioStreams{In: strings.NewReader(stdin), Out: &stdout, Err: &stderr}, func(string) string { return "" }, func(int) { t.Error("the process was ended") })
	code = execute(t.Context(), a, append([]string{"boot"}, args...))
	return stdout.String(), stderr.String(), code
}

// kubeletBoot writes a capture in which kubelet starts after so many seconds.
func kubeletBoot(t *testing.T, path string, seconds int) string {
	t.Helper()
	at := boot.Micros(seconds) * 1e6
	c := &boot.Capture{Host: boot.Host{Name: strings.TrimSuffix(filepath.Base(path), ".json")}, Manager: boot.Manager{Userspace: 1e6, SecurityStart: 1e6, Finish: at + 5e6},
		Units: []boot.Unit{{ID: "kubelet.service", After: []string{"net.service"}, Stamps: boot.Stamps{Activating: at, Activated: at + 1e6}}, {ID: "net.service", Stamps: boot.Stamps{Activating: 2e6, Activated: at - 1e6}}}}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := c.Write(f); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestBootCompat(t *testing.T) {
	for want, args := range map[string][]string{
		"docker.chain":         {publishedBoot("docker.show")},
		"preprovisioned.chain": {publishedBoot("preprovisioned.show")},
		"cloud-final.chain":    {"--unit", "cloud-final.service", publishedBoot("cloud-final.show")},
		"walinuxagent.chain":   {"--unit", "walinuxagent.service", publishedBoot("cloud-final.show")},
	} {
		t.Run(want, func(t *testing.T) {
			out, errs, code := bootRun(t, "", append([]string{"chain", "--compat"}, args...)...)
			if code != 0 || out != readAll(t, publishedBoot(want)) {
				t.Errorf("%s: exit code %d, %s\n%s", want, code, errs, out)
			}
		})
	}
	real := filepath.Join("..", "..", "boot", "read", "testdata", "real")
	dump := readAll(t, filepath.Join(real, "manager.txt")) + "\n" + readAll(t, filepath.Join(real, "units.txt"))
	for _, verb := range []string{"time", "blame"} {
		if out, errs, code := bootRun(t, dump, verb, "--compat", "-"); code != 0 || out != readAll(t, filepath.Join(real, verb+".txt")) {
			t.Errorf("%s: exit code %d, %s\n%s", verb, code, errs, out)
		}
	}
	wide, _, _ := bootRun(t, dump, "chain", "--compat", "--fuzz", "1 min", "-")
	narrow, _, _ := bootRun(t, dump, "chain", "--compat", "-")
	if len(wide) <= len(narrow) {
		t.Errorf("a fuzz of a minute shows no more than none:\n%s", wide)
	}
}

func TestBootVerbs(t *testing.T) {
	for _, tc := range []struct {
		args, want string
	}{
		{"show", "16min 40.410s"}, {"time", "parked 16min 40.410s besides"}, {"chain", "cloud-init-local.service @2.504s +16min 40.410s, of it parked 16min 40.410s"},
		{"blame", "cloud-init.service"}, {"show -o json", `"parkedFor": 1000410000`}, {"show -o capture", boot.Schema}, {"chain -o json", `"chain"`},
		{"plot", "<!doctype html>"}, {"plot -o svg", "<svg"}, {"plot -o trace", `"traceEvents"`}, {"chain --unit cloud-config.service", "Critical chain to cloud-config.service"},
	} {
		t.Run(tc.args, func(t *testing.T) {
			out, errs, code := bootRun(t, "", append(strings.Fields(tc.args), publishedBoot("preprovisioned.show"))...)
			if code != 0 || !strings.Contains(out, tc.want) {
				t.Errorf("%s: exit code %d, %q not in the output; %s", tc.args, code, tc.want, errs)
			}
		})
	}
	file := filepath.Join(t.TempDir(), "boot.html")
	if out, errs, code := bootRun(t, "", "plot", "-f", file, publishedBoot("docker.show")); code != 0 || out != "" || !strings.Contains(readAll(t, file), "</html>") {
		t.Errorf("plot -f: exit code %d, %s %s", code, out, errs)
	}
}

// TestBootCaptureRoundTrip: what show -o capture writes is read again, and says the same.
func TestBootCaptureRoundTrip(t *testing.T) {
	doc, _, _ := bootRun(t, "", "show", "-o", "capture", publishedBoot("cloud-final.show"))
	direct, _, _ := bootRun(t, "", "show", publishedBoot("cloud-final.show"))
	again, errs, code := bootRun(t, doc, "show", "-")
	if code != 0 || again != direct {
		t.Errorf("exit code %d, %s\n%s", code, errs, again)
	}
}

func TestBootRefusals(t *testing.T) {
	dir := t.TempDir()
	junk := filepath.Join(dir, "junk.txt")
	if err := os.WriteFile(junk, []byte("hello"), 0o644); err != nil {
		t.Fatal(err)
	}
	seed := publishedBoot("docker.show")
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"show", junk}, "no boot recognised"},
		{[]string{"show", filepath.Join(dir, "nothing")}, "no such file"},
		{[]string{"show", dir}, "no boot recognised"},
		{[]string{"show", "-o", "xml", "/nowhere"}, "use -o text, json, yaml or capture"},
		{[]string{"compare", seed}, "use kamino boot compare A B"},
		{[]string{"chian", seed}, "did you mean: kamino boot chain"},
		{[]string{"plot", "-o", "png", seed}, "use -o html, svg or trace"},
		{[]string{"chain", "--fuzz", "soon", seed}, "for example 50ms or 1s"},
		{[]string{"chain", "--unit", "nosuch.service", seed}, "kamino boot blame"},
		{[]string{"chain", "--compat", "--unit", "nosuch.service", seed}, "kamino boot blame"},
		{[]string{"pool", junk}, "none of 1 files could be read"},
		{[]string{"pool", filepath.Join(dir, "nothing")}, "no such file"},
		{[]string{"plot", "-f", filepath.Join(dir, "no", "folder.html"), seed}, "no such file"},
	} {
		if out, errs, code := bootRun(t, "", tc.args...); code != exitFailed || !strings.Contains(errs, tc.want) {
			t.Errorf("%q: exit code %d, %q, want %q; printed %.80q", tc.args, code, errs, tc.want, out)
		}
	}
}

// TestBootTwoBoots: files of two boots are refused by their names.
func TestBootTwoBoots(t *testing.T) {
	a, b, c := publishedBoot("docker.show"), publishedBoot("docker.show"), publishedBoot("preprovisioned.show")
	_, errs, code := bootRun(t, "", "show", a, b, c)
	if want := a + " and " + c + ": records of two boots, userspace began 1.466s and 2.310s after the kernel"; code != exitFailed || !strings.Contains(errs, want) {
		t.Errorf("exit code %d, %q, want %q", code, errs, want)
	}
}

func TestBootCompareBudget(t *testing.T) {
	dir := t.TempDir()
	a, b := kubeletBoot(t, filepath.Join(dir, "a.json"), 60), kubeletBoot(t, filepath.Join(dir, "b.json"), 40)
	for budget, want := range map[string]int{"45s": 0, "40s": 0, "39s": exitRefused} {
		t.Run(budget, func(t *testing.T) {
			out, errs, code := bootRun(t, "", "compare", "--budget", budget, a, b)
			if code != want || !strings.Contains(out, "kubelet.service comes 20s sooner in b") {
				t.Errorf("budget %s: exit code %d, want %d\n%s%s", budget, code, want, out, errs)
			}
			if want != 0 && !strings.Contains(errs, "1s over the budget of 39s") {
				t.Errorf("budget %s: said %q", budget, errs)
			}
		})
	}
	out, _, _ := bootRun(t, "", "compare", "-o", "json", a, b)
	var c boot.Comparison
	if err := json.Unmarshal([]byte(out), &c); err != nil || c.B.Net-c.A.Net != -20e6 {
		t.Errorf("JSON: %v, %+v", err, c)
	}
	if out, _, _ := bootRun(t, "", "compare", "-o", "html", a, b); !strings.Contains(out, "</html>") {
		t.Error("HTML is not whole")
	}
}

func TestBootPool(t *testing.T) {
	dir := t.TempDir()
	for i := range 9 {
		kubeletBoot(t, filepath.Join(dir, fmt.Sprintf("node-%d.json", i)), 30+i)
	}
	kubeletBoot(t, filepath.Join(dir, "slow.json"), 300)
	if err := os.WriteFile(filepath.Join(dir, "torn.json"), []byte(`{"schema"`), 0o644); err != nil {
		t.Fatal(err)
	}
	out, errs, code := bootRun(t, "", "pool", dir)
	if code != 0 || !strings.Contains(out, "10 boots") || !strings.Contains(out, "median 34.500s") || !strings.Contains(out, "slow ") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if !strings.Contains(errs, "skipped:") || !strings.Contains(errs, "torn.json") {
		t.Errorf("the torn file is not told of: %q", errs)
	}
	out, _, _ = bootRun(t, "", "pool", "-o", "json", dir)
	var r boot.PoolReport
	if err := json.Unmarshal([]byte(out), &r); err != nil || r.Boots != 10 || len(r.Outliers) != 1 || r.Outliers[0].Name != "slow" {
		t.Errorf("JSON: %v, %+v", err, r)
	}
}

// TestBootBudgetWithoutEnd: a budget is not kept by a boot whose end, or beginning, is not in the record.
func TestBootBudgetWithoutEnd(t *testing.T) {
	const chain = "multi-user.target @12.3s\n└─kubelet.service @11.9s\n  └─cloud-final.service @8.1s +3.7s\n"
	const hung = "Nov 27 03:02:12 n1 systemd[1]: systemd 249 running in system mode\nNov 27 03:02:54 n1 systemd[1]: Starting Execute cloud user/final scripts...\n"
	good := kubeletBoot(t, filepath.Join(t.TempDir(), "good.json"), 20)
	for name, tc := range map[string]struct {
		text, budget, want string
		code               int
	}{
		"lengths only":         {"53.780s cloud-final.service\n", "60s", "does not say when a unit started", 1},
		"hung":                 {hung, "60s", "had not ended when the record ended", 1},
		"from userspace":       {chain, "60s", "times count from the start of userspace", 1},
		"from userspace, over": {chain, "10s", "over the budget of 10s", exitRefused},
	} {
		t.Run(name, func(t *testing.T) {
			_, errs, code := bootRun(t, tc.text, "compare", good, "-", "--budget", tc.budget)
			if code != tc.code || !strings.Contains(errs, tc.want) {
				t.Errorf("exit code %d, want %d: %s", code, tc.code, errs)
			}
		})
	}
}

// TestBootUnitWithoutSuffix: a unit may be named as systemctl takes it.
func TestBootUnitWithoutSuffix(t *testing.T) {
	file := kubeletBoot(t, filepath.Join(t.TempDir(), "n.json"), 20)
	for _, args := range [][]string{{"chain", "--unit", "net"}, {"chain", "--compat", "--unit", "net"}, {"show", "--unit", "net"}} {
		if out, errs, code := bootRun(t, "", append(args, file)...); code != 0 || !strings.Contains(out, "net.service") {
			t.Errorf("%v: exit code %d, %s\n%s", args, code, errs, out)
		}
	}
}
