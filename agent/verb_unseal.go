package agent

import (
	"context"
	"errors"
	"fmt"
	"os"

	"kamino.dev/kamino/agent/seal"
)

func runUnseal(ctx context.Context, e *env, args []string) error {
	f := e.flags("unseal")
	after := f.Bool("after-seal", false, "for the seal's own unit: start the node's services again as well; on a sealed disk do nothing")
	powerOff := f.Bool("poweroff", false, "with --after-seal: switch the machine off when the seal was killed on a disk that it had sealed, or cannot be undone")
	if err := parse(f, args); err != nil {
		return err
	}
	d, h, err := e.open()
	if err != nil {
		return err
	}
	defer d.Close()
	if *after && endedByItself() {
		return nil
	}
	if *after && d.Exists(seal.ReceiptPath) {
		if *powerOff {
			e.log.Error("the seal was ended on a sealed disk; switching off, start the machine again: it comes back as the first clone")
			return h.PowerOff(ctx)
		}
		return nil
	}
	n, err := seal.Unseal(d)
	if err != nil && *after && *powerOff {
		return errors.Join(err, h.PowerOff(ctx)) // its boot tries again
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(e.out, "undid %d changes\n", n)
	if !*after {
		return nil
	}
	e.log.Warn("the seal did not end by itself; starting the node's services again")
	return (&seal.Services{Host: h, Disk: d, Log: e.log}).Revive(ctx)
}

// endedByItself reports whether the seal of this unit succeeded, or failed in an orderly way and so
// has done itself what is to be done. The variables are those of systemd.exec(5) for ExecStopPost;
// a crash of the program has exit code 2.
func endedByItself() bool {
	code := os.Getenv("EXIT_STATUS")
	if os.Getenv("SERVICE_RESULT") == "success" {
		return true
	}
	return os.Getenv("SERVICE_RESULT") == "exit-code" && (code == fmt.Sprint(exitFailed) || code == fmt.Sprint(exitFound))
}
