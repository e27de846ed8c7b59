package kamino

import (
	"reflect"
	"testing"
)

// TestPortsTakeNoFlags: no method of a port has a parameter that changes what the method does.
func TestPortsTakeNoFlags(t *testing.T) {
	for _, port := range []reflect.Type{reflect.TypeFor[Provider](), reflect.TypeFor[Prover](), reflect.TypeFor[Standby](),
		reflect.TypeFor[Cluster](), reflect.TypeFor[Examiner](), reflect.TypeFor[Patcher](), reflect.TypeFor[PackageStore](),
		reflect.TypeFor[Clock](), reflect.TypeFor[Recorder]()} {
		for i := range port.NumMethod() {
			m := port.Method(i)
			for in := range m.Type.Ins() {
				if in.Kind() == reflect.Bool {
					t.Errorf("%s.%s takes a flag", port, m.Name)
				}
			}
		}
	}
}
