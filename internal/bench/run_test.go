package bench

import (
	"os/exec"
	"testing"
	"time"
)

func TestRun(t *testing.T) {
	ballast := make([]byte, 200<<20) // what the child must not be charged with
	for i := 0; i < len(ballast); i += 4096 {
		ballast[i] = 1
	}
	cost, err := Run(exec.Command("sleep", "0.05"))
	if err != nil {
		t.Fatal(err)
	}
	if cost.Wall < 50*time.Millisecond || cost.Megabytes <= 0 || cost.Megabytes > 100 {
		t.Errorf("%+v", cost)
	}
	if _, err := Run(exec.Command("false")); err == nil {
		t.Error("no error of a program that failed")
	}
	if ballast[4096] != 1 {
		t.Error("the ballast went")
	}
}
