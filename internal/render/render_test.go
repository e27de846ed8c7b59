package render

import (
	"html"
	"html/template"
	"strings"
	"testing"
)

type item struct {
	Name string
	N    int
	Sub  *item
}

// TestLikeTemplate: what is rendered is what html/template renders.
func TestLikeTemplate(t *testing.T) {
	data := map[string]any{"Title": `<b> & "c"'`, "None": "", "Items": []item{{"a", 1, nil}, {"b<", 2, &item{Name: "sub"}}}, "Empty": []item{}, "Words": []string{"x", "y"}, "Yes": true, "No": false}
	shout := strings.ToUpper
	for _, text := range []string{
		`{{.Title}} <a title="{{.Title}}">{{or .None "-"}}</a>`,
		`{{range .Items}}<i>{{.Name}}{{if eq .N 1}} one{{else}} more{{end}}{{with .Sub}} of {{.Name}}{{end}}</i>{{end}}`,
		`{{range $i, $w := .Words}}{{if eq $i 0}}first {{end}}{{$w}}{{else}}none{{end}}`,
		`{{range .Empty}}x{{else}}none{{end}}{{if .Empty}}x{{else if .Yes}}y{{end}}{{if .No}}x{{end}}`,
		`{{if gt (len .Items) 1}}{{len .Items}}{{end}} {{shout "a"}}{{with .None}}x{{else}}{{.Title}}{{end}}`,
		`{{define "one"}}[{{.Name}}]{{end}}{{range .Items}}{{template "one" .}}{{end}}`,
		"a\n  {{- if .Yes}}\n  b\n  {{- end}}\n",
	} {
		var want, got strings.Builder
		if err := template.Must(template.New("x").Funcs(template.FuncMap{"shout": shout}).Parse(text)).Execute(&want, data); err != nil {
			t.Fatal(err)
		}
		mine, err := New("x", text, map[string]func(string) string{"shout": shout}, html.EscapeString)
		if err != nil {
			t.Fatal(err)
		}
		if err := mine.Execute(&got, data); err != nil || got.String() != want.String() {
			t.Errorf("%s\nis %q, want %q, %v", text, got.String(), want.String(), err)
		}
	}
}

// TestRaw: only what says so is not escaped, and what is not known is an error.
func TestRaw(t *testing.T) {
	var out strings.Builder
	if err := Must(New("x", "{{.A}}{{.B}}", nil, html.EscapeString)).Execute(&out, map[string]any{"A": Raw("<b>"), "B": "<b>"}); err != nil || out.String() != "<b>&lt;b&gt;" {
		t.Errorf("%q, %v", out.String(), err)
	}
	for _, bad := range []string{"{{.Nothing}}", "{{.A | len}}", "{{gt 1 .A}}", `{{template "none"}}`, "{{range .A}}{{end}}", "{{.A.B}}"} {
		if err := Must(New("x", bad, nil, nil)).Execute(&out, map[string]any{"A": "x"}); err == nil {
			t.Errorf("%s is rendered all the same", bad)
		}
	}
}
