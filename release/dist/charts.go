package dist

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// kindFile is the CustomResourceDefinition, which is in the chart kamino, and beside it for those
// who use no Helm.
const kindFile = "charts/kamino/templates/kamino.dev_nodeprototypes.yaml"

// charts packs each directory of charts/ as "helm package" does, with the release's version, with
// the charts that it depends on, and with the images of the release as values, by digest.
func (r *Release) charts(context.Context) error {
	dirs, err := filepath.Glob(filepath.Join(r.Source, "charts", "*", "Chart.yaml"))
	if err != nil {
		return err
	}
	for _, file := range dirs {
		name := filepath.Base(filepath.Dir(file))
		entries, err := r.chart(filepath.Dir(file), name)
		if err != nil {
			return fmt.Errorf("chart %s: %w", name, err)
		}
		packed, err := tarball(name, r.Time, entries)
		if err != nil {
			return err
		}
		if err := r.write(name+"-"+r.Version+".tgz", packed); err != nil {
			return err
		}
	}
	kind, err := os.ReadFile(filepath.Join(r.Source, kindFile))
	if err != nil {
		return err
	}
	return r.write("kamino-crds_"+r.Version+".yaml", kind)
}

func (r *Release) chart(dir, name string) ([]entry, error) {
	var entries []entry
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		at, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		body, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		switch at {
		case "Chart.yaml":
			body, err = edit(body, []value{{"version", r.Version}, {"appVersion", r.Version}})
		case "values.yaml":
			body, err = edit(body, r.imageValues(name))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
		entries = append(entries, entry{name: filepath.ToSlash(at), mode: 0o644, body: body})
		return nil
	})
	if err != nil || name != "kamino" {
		return entries, err
	}
	// Its dependency, which its Chart.yaml names by path.
	const base = "kamino-base"
	brought, err := r.chart(filepath.Join(filepath.Dir(dir), base), base)
	for _, e := range brought {
		e.name = "charts/" + base + "/" + e.name
		entries = append(entries, e)
	}
	return entries, err
}

// value is a scalar of a YAML document, at keys with points between them; or a list of one.
type value struct{ path, text string }

// imageValues are what each chart calls the release's images.
func (r *Release) imageValues(chart string) []value {
	switch chart {
	case "kamino-base":
		return []value{{"sealImages[]", r.reference(agent)}}
	case "kamino":
		return []value{
			{"image.registry", r.Registry}, {"image.repository", kamino}, {"image.digest", r.images[kamino].Hex},
			{"sealImage", r.reference(agent)},
			{"kamino-base.sealImages[]", r.reference(agent)},
		}
	default:
		return []value{
			{"kamino.container.imageRegistry", r.Registry}, {"kamino.container.imageRepository", kamino},
			{"kamino.container.imageHash", r.images[kamino].Hex}, {"kamino.container.sealImage", r.reference(agent)},
		}
	}
}

// edit sets values of a YAML document that it has already, and keeps its comments.
func edit(body []byte, values []value) ([]byte, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(body, &doc); err != nil {
		return nil, err
	}
	for _, v := range values {
		if err := set(doc.Content[0], v); err != nil {
			return nil, err
		}
	}
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	if err := e.Encode(&doc); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func set(n *yaml.Node, v value) error {
	key, rest, deeper := strings.Cut(v.path, ".")
	key, list := strings.CutSuffix(key, "[]")
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value != key {
			continue
		}
		at := n.Content[i+1]
		switch {
		case deeper:
			return set(at, value{rest, v.text})
		case list:
			at.Style, at.Content = 0, []*yaml.Node{{Kind: yaml.ScalarNode, Tag: "!!str", Value: v.text}}
		default:
			at.SetString(v.text)
			at.Style = yaml.DoubleQuotedStyle
		}
		return nil
	}
	return fmt.Errorf("there is no %s", v.path)
}
