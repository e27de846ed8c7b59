package scan

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// attributes looks at a file's extended attributes as at assignments, name=value: those of users
// and of trusted programs (xattr(7)); the kernel's own classes hold access rights and digests.
func (r *reader) attributes(f *os.File, in *inside) error {
	const most = 64 << 10 // of a list (XATTR_LIST_MAX) and of a value (XATTR_SIZE_MAX)
	list, value := r.buf[:most], r.buf[most:2*most]
	n, err := unix.Flistxattr(int(f.Fd()), list)
	if errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list attributes: %w", err)
	}
	for attribute := range strings.SplitSeq(string(list[:n]), "\x00") {
		class, key, _ := strings.Cut(attribute, ".")
		if class != "user" && class != "trusted" {
			continue
		}
		n, err := unix.Fgetxattr(int(f.Fd()), attribute, value)
		if errors.Is(err, unix.ENODATA) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read attribute %s: %w", attribute, err)
		}
		text := bytes.Join([][]byte{[]byte(key), value[:n], []byte("   ")}, []byte("="))
		all := hits{digest: r.matcher.digest, quiet: in.software}
		r.matcher.search(text, 0, len(text), 0, all.add)
		r.matcher.unfold(text, 0, len(text), false, 0, "", 0, in, all.add)
		for _, h := range relevant(all.list) {
			in.seen.found(Finding{Kind: h.kind, Path: in.file, Detail: "in its attribute " + short(attribute) + ", " + h.about})
		}
		in.seen.leave(all.more)
	}
	return nil
}
