package crash

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"kamino.dev/kamino"
	awsemulator "kamino.dev/kamino/aws/emulator"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/internal/invariant"
)

// reason stands on what is withdrawn.
const reason = "it does not boot"

// moves are the rows of the commands that choose another image for the next machine, and do
// nothing else.
var moves = map[Work]string{Rollback: "V1", Withdraw: "V2", Promote: "V3"}

// moveShapes are the pools in which the next machine's image is chosen by a command. Four versions
// are offered, and what is promoted is a hidden one of the present day.
func moveShapes(group *awsemulator.Group) (out []Shape) {
	for _, command := range []Work{Rollback, Withdraw, Promote} {
		for _, points := range []bool{true, false} {
			reference := map[bool]string{true: "definition", false: "version"}[points]
			s := Shape{Name: fmt.Sprintf("%s, by %s", command, reference), Command: command, Old: 4, Points: points, Tagged: !points,
				Group: group}
			out = append(out, s)
			if group != nil && !points {
				s.Name, s.Group = string(command)+", by number", &awsemulator.Group{Version: "1"}
				out = append(out, s)
			}
		}
	}
	return out
}

// hidden says whether the pool's history has a version of the present day that nobody promoted.
func (s Shape) hidden() bool { return s.Named || s.Command == Promote }

// move begins the world's command; adopt is that of a promotion.
func (w *World) move(p *Process, adopt bool) *Process {
	promoted := kamino.VersionName(w.start)
	if w.station.kamino != "" {
		args := []string{string(w.shape.Command), "--pool", poolName, "-o", "json"}
		switch w.shape.Command {
		case Withdraw:
			args = append(args, "--reason", reason)
		case Promote:
			args = append(args, "--version", promoted, "--accept-unsealed", "--adopt-model="+strconv.FormatBool(adopt))
		}
		return w.spawn(p, args...)
	}
	w.begin(p, func(ctx context.Context, e *engine.Engine) (err error) {
		var back engine.Rollback
		switch w.shape.Command {
		case Rollback:
			back, err = e.Rollback(ctx, engine.RollbackOptions{Pool: poolName})
		case Withdraw:
			back, err = e.WithdrawVersion(ctx, kamino.WithdrawOptions{Pool: poolName, Reason: reason})
		default:
			back, err = e.PromoteVersion(ctx, engine.PromoteOptions{Pool: poolName, Version: promoted, AcceptUnsealed: true,
				AdoptModel: adopt})
		}
		p.Result.Warnings = back.Warnings
		return err
	})
	return p
}

// nextName is what the pool's next machine boots from: a version's name, else an image. mu is held.
func (w *World) nextName() string {
	for _, p := range w.state.Pools {
		if p.ID != w.pool {
			continue
		}
		image := cmp.Or(p.Next, p.Image)
		for _, a := range w.state.Artifacts {
			if a.Kind == invariant.Version && strings.EqualFold(a.ID, image) {
				return a.Name
			}
		}
		return image
	}
	return ""
}

// judgeNext notes what the next machine boots from. Where a command chooses it, that changes once,
// from old to new: it is never a third, nor a definition that resolves to nothing, and what was
// left for the new one never comes back. mu is held.
func (w *World) judgeNext() {
	if w.shape.Command == "" || len(w.state.Pools) == 0 {
		return
	}
	now := w.nextName()
	if len(w.nexts) > 0 && w.nexts[len(w.nexts)-1] == now {
		return
	}
	w.nexts = append(w.nexts, now)
	if w.chosen != nil && !slices.Equal(w.nexts, w.chosen[:min(len(w.nexts), len(w.chosen))]) {
		w.audit.Violate("I6", "the next machine boots from %q: it must go from %q once", w.nexts, w.chosen)
	}
}

// chooses says what is wrong with an undisturbed command.
func (g *Golden) chooses() error {
	if g.Shape.Command != "" && len(g.nexts) != 2 {
		return fmt.Errorf("the undisturbed run of %s lets the next machine boot from %q, not from an old and a new image",
			g.Shape.Name, g.nexts)
	}
	return nil
}

// boots lets the pool's next machine boot from a version.
func (w *onAzure) boots(version string) {
	w.cloud.Change(w.scenario.PoolID(poolName), fmt.Sprintf(`{"properties":{"virtualMachineProfile":{"storageProfile":{"imageReference":{"id":%q,
		"publisher":null,"offer":null,"sku":null,"version":null}}}}}`, w.definition+"/versions/"+version))
}

func (w *onAWS) boots(version string) {
	defer w.clock.virtual.Advance(30 * time.Second) // until a parameter counts
	g, _ := w.cloud.Group(poolName)
	for _, m := range w.cloud.Images() {
		if m.Tags["kamino-version"] != version {
			continue
		}
		if parameter, points := strings.CutPrefix(g.Named, "resolve:ssm:"); points {
			w.parameter(parameter, m.ID)
			return
		}
		w.call("ec2", "CreateLaunchTemplateVersion", "LaunchTemplateName", poolName, "SourceVersion", strconv.Itoa(g.Version),
			"LaunchTemplateData.ImageId", m.ID)
		if w.shape.Group.Version == "" {
			w.call("ec2", "ModifyLaunchTemplate", "LaunchTemplateName", poolName, "SetDefaultVersion", strconv.Itoa(w.versions()))
			return
		}
		w.call("autoscaling", "UpdateAutoScalingGroup", "AutoScalingGroupName", poolName,
			"LaunchTemplate.LaunchTemplateName", poolName, "LaunchTemplate.Version", strconv.Itoa(w.versions()))
	}
}
