package machines

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"

	"kamino.dev/kamino/azure/emulator"
)

// FindInImage counts how often each needle is in the bytes of an image version,
// as a machine made from it would read them from its disk: files, what was
// deleted, and what lies behind the ends of files.
func (l *Lab) FindInImage(ctx context.Context, versionID string, needles map[string][]byte) (map[string]int, error) {
	image := l.Factory.artifact(versionID)
	raw := image + ".raw"
	defer os.Remove(raw) // a leftover costs room, nothing else
	if err := qemuImg(ctx, "convert", "-q", "-O", "raw", image, raw); err != nil {
		return nil, err
	}
	file, err := os.Open(raw)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return count(file, needles)
}

// count reads everything once.
func count(r io.Reader, needles map[string][]byte) (map[string]int, error) {
	longest := 0
	for name, n := range needles {
		if len(n) < 8 {
			return nil, fmt.Errorf("look for %s: %d bytes would be found anywhere", name, len(n))
		}
		longest = max(longest, len(n))
	}
	found := map[string]int{}
	const piece = 4 << 20
	window := make([]byte, 0, piece+longest)
	in := bufio.NewReaderSize(r, piece)
	for {
		kept := len(window)
		n, err := io.ReadFull(in, window[kept:kept+piece])
		window = window[:kept+n]
		for name, needle := range needles {
			// What ends within the part that was kept has been counted.
			from := max(0, kept-len(needle)+1)
			found[name] += bytes.Count(window[from:], needle)
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return found, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read image: %w", err)
		}
		tail := min(len(window), longest-1)
		copy(window, window[len(window)-tail:])
		window = window[:tail]
	}
}

// secretsScript prints what only the donor may know, one a line: name, tab, text.
const secretsScript = `
key() { printf '%s\t%s\n' "$1" "$(grep -v -e ---- "$2" | sed -n "$3p")"; }
for t in rsa ecdsa ed25519; do key "ssh $t key" /etc/ssh/ssh_host_${t}_key 3; done
key "kubelet's private key" /var/lib/kubelet/pki/kubelet-client-current.pem '$'
key machine-id /etc/machine-id 1
`

// Secrets are texts on a machine's disk that no image may hold.
func (l *Lab) Secrets(ctx context.Context, i emulator.Instance) (map[string][]byte, error) {
	out, _, err := l.Run(ctx, i, secretsScript)
	if err != nil {
		return nil, err
	}
	found := map[string][]byte{}
	for _, line := range bytes.Split([]byte(out), []byte("\n")) {
		if name, text, ok := bytes.Cut(line, []byte("\t")); ok && len(text) > 0 {
			found[string(name)] = text
		}
	}
	return found, nil
}
