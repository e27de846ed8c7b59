package kamino

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"strings"
	"testing"

	"kamino.dev/kamino/internal/hostile"
)

// TestPlainAnnotations: a node writes its annotations itself. What is read of each, field by field,
// has nothing that a terminal obeys, also where the JSON has it as an escape.
func TestPlainAnnotations(t *testing.T) {
	packed := func(text []byte) []byte {
		var out bytes.Buffer
		z := gzip.NewWriter(&out)
		_, _ = z.Write(text)
		_ = z.Close()
		return out.Bytes()
	}
	asJSON := func(v any) string {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	var mark Mark
	var receipt Receipt
	var fresh Freshness
	var report NodeReport
	var patched PatchReport
	var failure PatchFailure
	for _, v := range []any{&mark, &receipt, &fresh, &report, &patched, &failure} {
		hostile.Fill(v)
	}
	report.Nonce, mark.Format = "n", MarkFormat
	answer := map[string]any{"run": "r", "nonce": "n", "list": packed([]byte(hostile.Text)), "report": packed([]byte(asJSON(patched)))}
	n := Node{Name: "n1", Taints: []Taint{{Key: TaintPatchFailed}}, Annotations: map[string]string{
		AnnotationRun: asJSON(mark), AnnotationReceipt: asJSON(receipt), AnnotationFreshness: asJSON(fresh), AnnotationReport: asJSON(report),
		AnnotationPatch: asJSON(answer), AnnotationPackages: asJSON(answer), AnnotationPatchFailed: asJSON(failure),
		AnnotationSealFailure: asJSON(map[string]string{"run": "r", "error": hostile.Text}),
	}}
	readMark, err := n.Mark()
	if err != nil {
		t.Fatal(err)
	}
	readReceipt, _ := n.Receipt()
	readReport, _ := n.Report("n")
	list, _ := n.Packages("r", "n")
	readPatch := n.PatchAnswer(AnnotationPatch, "r", "n")
	last := readPatch.Last // several lines
	readPatch.Last = ""
	for name, read := range map[string]any{
		"mark": readMark, "receipt": readReceipt, "freshness": n.Freshness(), "report": readReport, "packages": list,
		"patch": readPatch, "patch failure": n.Blocked(), "seal failure": n.SealFailure("r"),
	} {
		t.Run(name, func(t *testing.T) {
			if hostile.Reached(read) == 0 {
				t.Errorf("nothing of the hostile text arrived in %+v", read)
			}
			for _, bad := range hostile.Find(read) {
				t.Error(bad)
			}
		})
	}
	for line := range strings.Lines(last) {
		if bad := hostile.In(strings.TrimSuffix(line, "\n")); bad != "" {
			t.Errorf("the last lines of the package manager have %s", bad)
		}
	}
}
