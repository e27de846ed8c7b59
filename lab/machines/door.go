package machines

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/crypto/ssh"
)

// doors let people on this machine reach the virtual ones: a port of loopback for
// each, and DIR/ssh_config with all of them. `ssh -F DIR/ssh_config pool1_0`
type doors struct {
	dir     string
	network *network

	mu   sync.Mutex
	open map[string]net.Listener // by name of the machine
}

// newDoors writes the administrator's key.
func newDoors(dir string, network *network, a administrator) (*doors, error) {
	block, err := ssh.MarshalPrivateKey(a.key, "kamino-lab")
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	d := &doors{dir: dir, network: network, open: map[string]net.Listener{}}
	if err := os.WriteFile(d.keyFile(), pem.EncodeToMemory(block), 0o600); err != nil {
		return nil, fmt.Errorf("write key: %w", err)
	}
	return d, d.write()
}

func (d *doors) keyFile() string { return filepath.Join(d.dir, "id_ed25519") }

func (d *doors) configFile() string { return filepath.Join(d.dir, "ssh_config") }

// add opens a door to a machine's sshd.
func (d *doors) add(name string, p *port) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen for ssh: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open[name] = listener
	go d.serve(listener, p.Address.Addr().String()+":22")
	return d.write()
}

func (d *doors) serve(listener net.Listener, to string) {
	for {
		from, err := listener.Accept()
		if err != nil {
			return // closed
		}
		go d.pass(from, to)
	}
}

func (d *doors) pass(from net.Conn, address string) {
	defer from.Close()
	to, err := d.network.dial(d.network.ctx, address)
	if err != nil {
		return // no sshd there; the client sees the connection end
	}
	defer to.Close()
	stop := context.AfterFunc(d.network.ctx, func() { from.Close() })
	defer stop()
	go func() {
		_, _ = io.Copy(to, from) // either end may go first
		to.Close()
	}()
	_, _ = io.Copy(from, to) // as above
}

func (d *doors) remove(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if listener := d.open[name]; listener != nil {
		_ = listener.Close() // nothing to flush
		delete(d.open, name)
		_ = d.write() // a stale line misleads nobody for long
	}
}

// write lists the doors for ssh. Host keys are not checked: a name is another machine tomorrow.
func (d *doors) write() error {
	text := ""
	for name, listener := range d.open {
		_, number, err := net.SplitHostPort(listener.Addr().String())
		if err != nil {
			return err
		}
		text += fmt.Sprintf("Host %s\n  HostName 127.0.0.1\n  Port %s\n  User azureuser\n  IdentityFile %s\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n",
			name, number, d.keyFile())
	}
	return whole(d.configFile(), func(temporary string) error { return os.WriteFile(temporary, []byte(text), 0o600) })
}

func (d *doors) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, listener := range d.open {
		_ = listener.Close() // nothing to flush
	}
	for _, file := range []string{d.keyFile(), d.configFile()} {
		_ = os.Remove(file) // the key opens nothing any more
	}
}
