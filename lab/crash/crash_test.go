package crash

import (
	"context"
	"fmt"
	"os"
	"testing"

	"kamino.dev/kamino/lab/controlplane"
)

var station *Station

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	ctx := context.Background()
	binary := os.Getenv("KAMINO_LAB")
	if binary == "" {
		var err error
		if binary, err = controlplane.Build(ctx); err != nil {
			return 0, err
		}
	}
	dir, err := os.MkdirTemp("", "kamino-crash-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	if station, err = NewStation(ctx, dir, binary); err != nil {
		return 0, err
	}
	defer station.Close()
	return m.Run(), nil
}

func TestGolden(t *testing.T) {
	g, err := runGolden(t.Context(), station, Shape{Name: "first day", NewNodes: 1})
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range g.Calls {
		t.Logf("%3d %-4s %-10s %s %d %s %v", c.N, g.Rows[i], c.Step, c, c.Status, c.Act, g.at[i])
	}
	for _, l := range g.Digest {
		t.Log(l[:min(len(l), 300)])
	}
}
