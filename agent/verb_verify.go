package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/runtimes"
	"kamino.dev/kamino/agent/scan"
	"kamino.dev/kamino/agent/seal"
)

func runVerify(ctx context.Context, e *env, args []string) error {
	f, v := e.sealFlags("verify")
	v.outputFlag(f)
	raw := f.String("raw", "", "scan every byte of this `device` or image; with --root as its mounted file system, what is allowed there is not reported")
	vmID := f.String("vm-id", "", "the donor's VM `UUID` (default from the receipt)")
	machineID := f.String("machine-id", "", "the donor's machine `id`")
	deep := f.Bool("deep", false, "also read installed software and container images")
	list := f.Bool("inventory", false, "instead of scanning, say why each file is on the disk, and print those that nothing explains, by directory; at low priority on a running node")
	allow := f.String("write-allow", "", "with --inventory: write what a seal policy would have to allow to this `file`, for review")
	if err := parse(f, args); err != nil {
		return err
	}
	var d *disk.Disk
	var o seal.Options
	if *list && *raw != "" || *allow != "" && !*list {
		fmt.Fprintln(e.err, "verify: --inventory is about files, not about --raw devices; --write-allow needs --inventory")
		return errUsage
	}
	if err := writable(*allow); err != nil {
		return err // before minutes of looking
	}
	rooted := *raw == ""
	f.Visit(func(given *flag.Flag) { rooted = rooted || given.Name == "root" })
	if rooted {
		var err error
		if d, _, err = e.open(); err != nil {
			return err
		}
		defer d.Close()
		v.noAgent = true
		if o, err = v.options(ctx, d); err != nil {
			return err
		}
	}
	if *list {
		return v.verifyInventory(ctx, d, o, *allow)
	}
	var options scan.Options
	var unread []string
	if d != nil {
		options = o.Scan(d)
		left, err := runtimes.Containers(d)
		if err != nil {
			unread = append(unread, "what containers wrote: "+err.Error())
		}
		options.Also = runtimes.Writable(left)
	}
	options.Deep = *deep
	options.Facts.Host = cmp.Or(v.host, cmp.Or(options.Facts.Host, v.donor))
	options.Facts.VMID = cmp.Or(*vmID, options.Facts.VMID)
	options.Facts.MachineID = cmp.Or(*machineID, options.Facts.MachineID)
	var r scan.Result
	var err error
	if *raw != "" {
		r, err = scan.Raw(ctx, *raw, d, options)
	} else {
		r, err = scan.Files(ctx, d, options)
	}
	if err != nil {
		return err
	}
	r.Skipped = append(r.Skipped, unread...)
	if v.output == "json" {
		text, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			return err
		}
		fmt.Fprintln(e.out, string(text))
	}
	for _, s := range r.Skipped {
		fmt.Fprintln(e.err, "skipped:", s)
	}
	if len(r.Findings) > 0 {
		return &seal.Found{Result: r}
	}
	if v.output == "" {
		fmt.Fprintf(e.out, "nothing found in %d files, %d bytes\n", r.Files, r.Bytes)
	}
	return nil
}
