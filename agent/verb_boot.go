package agent

import (
	"context"
	"time"

	"kamino.dev/kamino/agent/firstboot"
	"kamino.dev/kamino/agent/platform"
	"kamino.dev/kamino/agent/seal"
)

func runBoot(ctx context.Context, e *env, args []string) error {
	f := e.flags("boot")
	e.platformFlags(f)
	early := f.Bool("early", false, "only the part that runs before the network")
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
	m := &firstboot.Machine{Disk: d, Host: h, IMDS: e.metadata(d), Settings: settings, Log: e.log, Now: time.Now, Patience: e.patience,
		Wire: platform.WireServer{Endpoint: e.wireServer, Agent: "kamino-agent/" + Version, Client: platform.Direct(),
			Wait: platform.Sleep, Attempts: 5}}
	if *early {
		return m.Early(ctx)
	}
	return m.Boot(ctx)
}
