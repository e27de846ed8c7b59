package userdata

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// schema is as much of a JSON schema as is compared.
type schema struct {
	Type       string            `json:"type"`
	Additional json.RawMessage   `json:"additionalProperties"`
	Properties map[string]schema `json:"properties"`
	Items      *schema           `json:"items"`
	Enum       []string          `json:"enum"`
}

// TestSchema: the schema in docs has the fields that the decoder knows, no more and no fewer.
func TestSchema(t *testing.T) {
	data, err := os.ReadFile("../../docs/schemas/nodeconfig.v1alpha1.json")
	if err != nil {
		t.Fatal(err)
	}
	var s schema
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	compare(t, "NodeConfig", s, reflect.TypeFor[NodeConfig]())
	if methods := s.Properties["join"].Properties["method"].Enum; !slices.Equal(methods, []string{JoinKeep, JoinToken, JoinFile, JoinCommand}) {
		t.Errorf("join methods %q", methods)
	}
}

func compare(t *testing.T, at string, s schema, typ reflect.Type) {
	t.Helper()
	switch typ.Kind() {
	case reflect.Struct:
	case reflect.Slice:
		if s.Type != "array" || s.Items == nil {
			t.Errorf("%s is no array in the schema", at)
			return
		}
		compare(t, at+"[]", *s.Items, typ.Elem())
		return
	default:
		return
	}
	if string(s.Additional) != "false" {
		t.Errorf("%s allows unknown fields", at)
	}
	known := map[string]bool{}
	for i := range typ.NumField() {
		name, _, _ := strings.Cut(typ.Field(i).Tag.Get("yaml"), ",")
		known[name] = true
		inner, has := s.Properties[name]
		if !has {
			t.Errorf("%s.%s is not in the schema", at, name)
			continue
		}
		compare(t, at+"."+name, inner, typ.Field(i).Type)
	}
	for name := range s.Properties {
		if !known[name] {
			t.Errorf("%s.%s is in the schema only", at, name)
		}
	}
}
