package agent

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"strings"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/firstboot"
	"kamino.dev/kamino/agent/host"
	"kamino.dev/kamino/agent/nodeconfig"
	"kamino.dev/kamino/agent/platform"
	"kamino.dev/kamino/agent/seal"
	"kamino.dev/kamino/agent/userdata"
)

// partOf is the NodeConfig in user data, as a node on EC2 reads it.
func partOf(data []byte) ([]byte, error) {
	user, err := userdata.Read(data)
	if err != nil {
		return nil, err
	}
	part, err := user.NodeConfig()
	if err == nil && part == nil {
		part = data // whatever it is, it is refused with a reason
	}
	return part, err
}

// refusal is why the agent of this disk refuses a document that is right by itself: at its first boot
// where it has none yet, else while the node runs.
func refusal(d *disk.Disk, settings seal.Settings, doc nodeconfig.Document, c *userdata.NodeConfig) error {
	state, err := firstboot.ReadState(d)
	switch {
	case err != nil || state.Hash == doc.Hash():
		return err
	case state.Status == "" && d.Exists(seal.SettingsPath):
		return firstboot.Joins(settings, c)
	case state.Refused(doc.Hash()):
		return fmt.Errorf("this node has refused the document (%s): %s; correct it, and raise generation", state.Status, state.Error)
	}
	return state.Newer(c)
}

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
	settings, err := seal.ReadSettings(d)
	if err != nil {
		return err
	}
	doc := nodeconfig.Document{Source: *file}
	switch *file {
	case "":
		ctx, cancel := context.WithTimeout(ctx, e.patience)
		defer cancel()
		doc, err = nodeconfig.Find(ctx, settings.Sources, d, e.metadata(d).UserData)
	case "-":
		doc.Data, err = io.ReadAll(io.LimitReader(os.Stdin, userdata.Most+1))
	default:
		doc.Data, err = os.ReadFile(*file)
	}
	if err != nil {
		return err
	}
	whole := doc.Data
	if *file != "" && platform.OnEC2(d) {
		if doc.Data, err = partOf(doc.Data); err != nil {
			return err
		}
	}
	c, err := userdata.Parse(doc.Data)
	if err != nil {
		return err
	}
	if err := refusal(d, settings, doc, c); err != nil {
		return err
	}
	if *encode {
		fmt.Fprintln(e.out, base64.StdEncoding.EncodeToString(whole))
		return nil
	}
	if !*run { // who looks at a configuration does not trust it yet
		h = host.Idle{Skipped: func(command string) { fmt.Fprintln(e.out, "# not executed without --run:", command) }}
	}
	ask := *run || c.Join.Method != userdata.JoinCommand
	files, err := nodeconfig.Render(ctx, d, h, c, ask)
	if err != nil {
		return err
	}
	if !ask {
		fmt.Fprintf(e.out, "# not executed without --run: %s\n--- /%s: what it prints\n", strings.Join(c.Join.Command, " "),
			nodeconfig.BootstrapPath)
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
