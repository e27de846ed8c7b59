// Package charts carries the chart kamino-base for "kamino init", which applies what Helm would.
package charts

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"

	"kamino.dev/kamino/internal/render"
)

//go:embed kamino-base/templates/*.yaml
var files embed.FS

// Kind is the CustomResourceDefinition of NodePrototype.
//
//go:embed kamino/templates/kamino.dev_nodeprototypes.yaml
var Kind []byte

// Base renders the chart for the images that may seal disks: one YAML document for each object, in
// the order in which they can be made. The templates use what Helm and package render have in
// common.
func Base(sealImages []string) ([]string, error) {
	names, err := fs.Glob(files, "kamino-base/templates/*.yaml")
	if err != nil {
		return nil, fmt.Errorf("read chart kamino-base: %w", err)
	}
	values := map[string]any{"Values": map[string]any{"sealImages": sealImages}}
	var out []string
	for _, path := range names { // by name: the namespace comes before the roles
		source, err := files.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read chart kamino-base: %w", err)
		}
		t, err := render.New(path, string(source), nil, nil)
		if err != nil {
			return nil, fmt.Errorf("read chart kamino-base: %w", err)
		}
		var text strings.Builder
		if err := t.Execute(&text, values); err != nil {
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
