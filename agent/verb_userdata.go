package agent

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"strings"

	"kamino.dev/kamino/agent/host"
	"kamino.dev/kamino/agent/nodeconfig"
	"kamino.dev/kamino/agent/seal"
)

func runUserData(ctx context.Context, e *env, args []string) error {
	f := e.flags("userdata")
	e.platformFlags(f)
	file := f.String("file", "", "NodeConfig `file`, - for standard input (default: the disk's sources, as boot asks them)")
	run := f.Bool("run", false, "execute what a first boot would: join.command, and kubelet for its version; without it nothing is executed")
	encode := f.Bool("encode", false, "print it in base64, as userData wants it")
	if err := parse(f, args); err != nil {
		return err
	}
	d, h, err := e.open()
	if err != nil {
		return err
	}
	defer d.Close()
	doc := nodeconfig.Document{Source: *file}
	switch *file {
	case "":
		settings, serr := seal.ReadSettings(d)
		if serr != nil {
			return serr
		}
		ctx, cancel := context.WithTimeout(ctx, e.patience)
		defer cancel()
		doc, err = nodeconfig.Find(ctx, settings.Sources, d, e.metadata(d).UserData)
	case "-":
		doc.Data, err = io.ReadAll(io.LimitReader(os.Stdin, nodeconfig.Most+1))
	default:
		doc.Data, err = os.ReadFile(*file)
	}
	if err != nil {
		return err
	}
	c, err := nodeconfig.Parse(doc.Data)
	if err != nil {
		return err
	}
	if *encode {
		fmt.Fprintln(e.out, base64.StdEncoding.EncodeToString(doc.Data))
		return nil
	}
	if !*run { // who looks at a configuration does not trust it yet
		h = host.Idle{Skipped: func(command string) { fmt.Fprintln(e.out, "# not executed without --run:", command) }}
	}
	ask := *run || c.Join.Method != nodeconfig.JoinCommand
	files, err := nodeconfig.Render(ctx, d, h, c, ask)
	if err != nil {
		return err
	}
	if !ask {
		fmt.Fprintf(e.out, "# not executed without --run: %s\n--- /%s: what it prints\n", strings.Join(c.Join.Command, " "), nodeconfig.BootstrapPath)
	}
	fmt.Fprintf(e.out, "# NodeConfig generation %d from %s, %s\n", c.Generation, doc.Source, doc.Hash())
	for _, file := range files {
		switch {
		case file.Data == nil:
			fmt.Fprintf(e.out, "--- /%s: none\n", file.Path)
		case file.Mode&0o077 == 0:
			fmt.Fprintf(e.out, "--- /%s: %d bytes, not shown, it holds a credential\n", file.Path, len(file.Data))
		default:
			fmt.Fprintf(e.out, "--- /%s\n%s", file.Path, file.Data)
		}
	}
	return nil
}
