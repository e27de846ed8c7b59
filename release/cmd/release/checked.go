package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
)

// checked asks govulncheck about both programs, with a copy of the vulnerability database. Nobody
// gets a release that was not asked about, unless whoever makes it says so.
func checked(ctx context.Context, source, database string, unchecked bool, log io.Writer) error {
	switch {
	case unchecked && database != "":
		return errors.New("-unchecked and -vulndb exclude each other")
	case unchecked:
		fmt.Fprintln(log, "NOT CHECKED for known vulnerabilities: do not publish this release")
		return nil
	case database == "":
		return errors.New("check for known vulnerabilities: no database; name a copy of https://vuln.go.dev/vulndb.zip, unpacked: make release VULNDB=DIR (or UNCHECKED=1 for a release that nobody publishes)")
	}
	at, err := filepath.Abs(database)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(source, ".ci/vulncheck"), at, "kamino", "kamino-agent")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("check for known vulnerabilities: %w", err)
	}
	return nil
}
