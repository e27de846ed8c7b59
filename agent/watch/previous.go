package watch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/nodeconfig"
)

// previousPath holds the files of the former generation while a new one is on trial. Its existence
// means that the trial has not ended well yet, so an agent that dies in between takes the trial
// back when it starts again.
const previousPath = "var/lib/kamino/previous.json"

type former struct {
	Path string      `json:"path"`
	Data []byte      `json:"data,omitempty"`
	Mode fs.FileMode `json:"mode,omitempty"`
	Was  bool        `json:"was"`
	Unit string      `json:"unit,omitempty"`
}

func keep(d *disk.Disk, files []nodeconfig.File) error {
	var all []former
	for _, f := range files {
		was := former{Path: f.Path, Unit: f.Unit}
		data, err := d.ReadFile(f.Path, disk.Small)
		if err == nil {
			was.Was, was.Data, was.Mode = true, data, f.Mode
		} else if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("keep former configuration: %w", err)
		}
		all = append(all, was)
	}
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return d.WriteFile(previousPath, text, 0o600)
}

func drop(d *disk.Disk) error { return d.Remove(previousPath) }

// Recover takes back a generation that is on trial: the former files, the restarts, and kubelet
// healthy again.
func (w *Watcher) Recover(ctx context.Context) error {
	text, err := w.Disk.ReadFile(previousPath, disk.Small)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var all []former
	if err := json.Unmarshal(text, &all); err != nil {
		return fmt.Errorf("decode former configuration: %w", err)
	}
	var files []nodeconfig.File
	for _, f := range all {
		file := nodeconfig.File{Path: f.Path, Mode: f.Mode, Unit: f.Unit}
		if f.Was {
			file.Data = append([]byte{}, f.Data...)
		}
		files = append(files, file)
	}
	made, err := nodeconfig.Write(w.Disk, files)
	if err != nil {
		return err
	}
	// kubelet always: an earlier attempt to go back may have been interrupted between the files and
	// the restart.
	if !slices.Contains(made.Units, "kubelet.service") {
		made.Units = append(made.Units, "kubelet.service")
	}
	if err := w.restart(ctx, made.Units); err != nil {
		return err
	}
	if err := w.healthy(ctx); err != nil {
		return fmt.Errorf("back at the former configuration: %w", err)
	}
	return drop(w.Disk)
}
