// Package charts carries the chart kamino-base for "kamino init", which applies what Helm would.
package charts

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"strings"
	"text/template"
)

//go:embed kamino-base/templates/*.yaml
var files embed.FS

// BaseValues are the values of the chart kamino-base; its values.yaml tells what they mean.
type BaseValues struct {
	SealImages []string
	Migrate    bool
}

// Base renders the chart: one YAML document for each object, in the order in which they can be
// made. The templates use what Helm and text/template have in common.
func Base(v BaseValues) ([]string, error) {
	all, err := template.ParseFS(files, "kamino-base/templates/*.yaml")
	if err != nil {
		return nil, fmt.Errorf("read chart kamino-base: %w", err)
	}
	names, err := fs.Glob(files, "kamino-base/templates/*.yaml")
	if err != nil {
		return nil, fmt.Errorf("read chart kamino-base: %w", err)
	}
	values := map[string]any{"Values": map[string]any{"sealImages": v.SealImages, "migrate": v.Migrate}}
	var out []string
	for _, path := range names { // by name: the namespace comes before the roles
		var text bytes.Buffer
		if err := all.ExecuteTemplate(&text, path[strings.LastIndex(path, "/")+1:], values); err != nil {
			return nil, fmt.Errorf("render chart kamino-base: %w", err)
		}
		for _, document := range strings.Split(text.String(), "\n---\n") {
			if document = strings.TrimSpace(document); document != "" {
				out = append(out, document+"\n")
			}
		}
	}
	return out, nil
}
