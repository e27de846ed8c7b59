package boot

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

// schemaNode is the part of JSON Schema that the capture's schema uses.
type schemaNode struct {
	Ref                  string                `json:"$ref"`
	Type                 string                `json:"type"`
	Const                string                `json:"const"`
	Format               string                `json:"format"`
	Description          string                `json:"description"`
	Minimum              *int64                `json:"minimum"`
	Maximum              *int64                `json:"maximum"`
	Properties           map[string]schemaNode `json:"properties"`
	Required             []string              `json:"required"`
	Items                *schemaNode           `json:"items"`
	AdditionalProperties *bool                 `json:"additionalProperties"`
	Defs                 map[string]schemaNode `json:"$defs"`
}

func readSchema(t *testing.T) schemaNode {
	t.Helper()
	data, err := os.ReadFile("../docs/schemas/boot-capture.v1.json")
	if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(strings.NewReader(string(data)))
	var s schemaNode
	if err := dec.Decode(&s); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSchemaMatchesType: the published schema has the fields of Capture, no more and no less, with
// their types.
func TestSchemaMatchesType(t *testing.T) {
	root := readSchema(t)
	if got := root.Properties["schema"].Const; got != Schema {
		t.Errorf("the schema is of %q, this program writes %q", got, Schema)
	}
	compareSchema(t, root, root, reflect.TypeFor[Capture](), "")
}

func compareSchema(t *testing.T, root, node schemaNode, goType reflect.Type, at string) {
	t.Helper()
	for node.Ref != "" {
		node = root.Defs[strings.TrimPrefix(node.Ref, "#/$defs/")]
	}
	for goType.Kind() == reflect.Pointer {
		goType = goType.Elem()
	}
	want := map[reflect.Kind]string{reflect.String: "string", reflect.Bool: "boolean", reflect.Int: "integer", reflect.Int64: "integer", reflect.Slice: "array", reflect.Struct: "object"}[goType.Kind()]
	switch {
	case goType == reflect.TypeFor[time.Time]():
		if node.Type != "string" || node.Format != "date-time" {
			t.Errorf("%s is %q, want a date-time", at, node.Type)
		}
		return
	case node.Type != want:
		t.Errorf("%s is %q in the schema, want %q", at, node.Type, want)
		return
	case goType == reflect.TypeFor[Micros]():
		if node.Minimum == nil || *node.Minimum != 0 || node.Maximum == nil || *node.Maximum != int64(MaxStamp) {
			t.Errorf("%s has other bounds than the reader", at)
		}
	case want == "array":
		compareSchema(t, root, *node.Items, goType.Elem(), at+"[]")
	case want == "object":
		fields := map[string]reflect.Type{}
		collectFields(goType, fields)
		for name, field := range fields {
			p, ok := node.Properties[name]
			if !ok {
				t.Errorf("%s.%s is not in the schema", at, name)
				continue
			}
			compareSchema(t, root, p, field, at+"."+name)
		}
		for name, p := range node.Properties {
			if _, ok := fields[name]; !ok {
				t.Errorf("%s.%s is in the schema and not in the type", at, name)
			}
			if p.Description == "" && p.Ref == "" && p.Items == nil {
				t.Errorf("%s.%s has no description", at, name)
			}
		}
	}
}

func collectFields(goType reflect.Type, into map[string]reflect.Type) {
	for i := range goType.NumField() {
		f := goType.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous:
			collectFields(f.Type, into)
		case name != "" && name != "-":
			into[name] = f.Type
		}
	}
}
