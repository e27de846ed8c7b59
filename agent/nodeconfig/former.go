package nodeconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"kamino.dev/kamino/agent/disk"
)

// FormerPath holds the former files while a new generation is on trial. As long as the file exists,
// the trial has no end yet: an agent or a machine that starts then restores the former files.
const FormerPath = "var/lib/kamino/previous.json"

// formerMost is the largest such file: a few configurations, in base64.
const formerMost = 16 << 20

type former struct {
	Path string      `json:"path"`
	Data []byte      `json:"data,omitempty"`
	Mode fs.FileMode `json:"mode,omitempty"`
	Was  bool        `json:"was"`
	Unit string      `json:"unit,omitempty"`
	// Changed says that a trial made the file another: its unit has read that.
	Changed bool `json:"changed,omitempty"`
}

// differs reports whether a file is another than the former one.
func (f former) differs(now File) bool {
	return f.Was != (now.Data != nil) || string(f.Data) != string(now.Data)
}

// KeepFormer keeps what stands now at the paths of files. A path that is kept already, because an
// earlier trial could not be taken back, stays as it was before that trial.
func KeepFormer(d *disk.Disk, files []File) error {
	all, err := readFormer(d)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, f := range files {
		if i := slices.IndexFunc(all, func(kept former) bool { return kept.Path == f.Path }); i >= 0 {
			all[i].Changed = all[i].Changed || all[i].differs(f)
			continue
		}
		was := former{Path: f.Path, Unit: f.Unit}
		data, err := d.ReadFile(f.Path, disk.Small)
		if err == nil {
			was.Was, was.Data, was.Mode = true, data, f.Mode&permissions(d, f.Path)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("keep former configuration: %w", err)
		}
		was.Changed = was.differs(f)
		all = append(all, was)
	}
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return d.WriteFile(FormerPath, text, 0o600)
}

// Restore writes the files of the former generation. It returns the units that may have read the
// files on trial, also after an attempt that was interrupted between the files and the restarts. The
// error is fs.ErrNotExist where no generation is on trial.
func Restore(d *disk.Disk) (Changes, error) {
	all, err := readFormer(d)
	if err != nil {
		return Changes{}, err
	}
	var files []File
	changed := map[string]bool{"kubelet.service": true}
	for _, f := range all {
		file := File{Path: f.Path, Mode: f.Mode, Unit: f.Unit}
		if f.Was {
			file.Data = append([]byte{}, f.Data...)
		}
		files = append(files, file)
		changed[f.Unit] = changed[f.Unit] || f.Changed
	}
	made, err := Write(d, files)
	for _, u := range made.Units {
		changed[u] = true
	}
	made.Units = inOrder(changed)
	return made, err
}

// DropFormer ends the trial.
func DropFormer(d *disk.Disk) error { return d.Remove(FormerPath) }

func readFormer(d *disk.Disk) (all []former, err error) {
	text, err := d.ReadFile(FormerPath, formerMost)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("decode former configuration /%s: %w", FormerPath, err)
	}
	return all, nil
}
