package machines

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"kamino.dev/kamino/azure/emulator"
)

// administrator is the user that the model gives machines, with its key.
type administrator struct {
	user   string
	key    ed25519.PrivateKey
	signer ssh.Signer
}

func newAdministrator() (administrator, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return administrator{}, fmt.Errorf("generate key: %w", err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		return administrator{}, fmt.Errorf("make signer: %w", err)
	}
	return administrator{"azureuser", key, signer}, nil
}

// authorized is the public key as the model of a scale set holds it.
func (a administrator) authorized() string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(a.signer.PublicKey())))
}

// ExitError is a command that ran on a machine and failed.
type ExitError struct {
	Code   int
	Stderr string
}

func (e *ExitError) Error() string {
	return fmt.Sprintf("exit code %d: %s", e.Code, strings.TrimSpace(e.Stderr))
}

// run executes a shell command as root on the machine behind conn, and returns
// what it printed and the machine's host key. The host key is taken as it comes:
// to see it is the point.
func (a administrator) run(ctx context.Context, conn net.Conn, script string) (out, hostKey string, err error) {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	var seen ssh.PublicKey
	config := &ssh.ClientConfig{User: a.user, Auth: []ssh.AuthMethod{ssh.PublicKeys(a.signer)}, Timeout: time.Minute,
		HostKeyAlgorithms: []string{ssh.KeyAlgoED25519},
		HostKeyCallback:   func(_ string, _ net.Addr, key ssh.PublicKey) error { seen = key; return nil }}
	c, channels, requests, err := ssh.NewClientConn(conn, conn.RemoteAddr().String(), config)
	if err != nil {
		conn.Close()
		return "", "", fmt.Errorf("log in: %w", err)
	}
	client := ssh.NewClient(c, channels, requests)
	defer client.Close()
	session, err := client.NewSession()
	if err != nil {
		return "", "", fmt.Errorf("open session: %w", err)
	}
	defer session.Close()
	var stdout, stderr bytes.Buffer
	session.Stdout, session.Stderr = &stdout, &stderr
	session.Stdin = strings.NewReader(script)
	err = session.Run("sudo sh -s")
	if exit := (*ssh.ExitError)(nil); errors.As(err, &exit) {
		err = &ExitError{exit.ExitStatus(), stderr.String()}
	}
	return stdout.String(), strings.TrimSpace(string(ssh.MarshalAuthorizedKey(seen))), err
}

// sshPatience is how long a machine that is Ready may have no sshd yet: a clone
// makes its host keys with what kubelet leaves of the processor.
const sshPatience = 3 * time.Minute

// Run executes a shell script as root on an instance, over ssh, and returns what
// it printed and the machine's ssh host key.
func (l *Lab) Run(ctx context.Context, i emulator.Instance, script string) (out, hostKey string, err error) {
	m, err := l.Factory.find(i)
	if err != nil {
		return "", "", err
	}
	conn, err := l.knock(ctx, m.Port.Address.Addr().String()+":22")
	if err != nil {
		return "", "", fmt.Errorf("reach %s: %w", i.Name, err)
	}
	out, hostKey, err = l.admin.run(ctx, conn, script)
	if err != nil {
		err = fmt.Errorf("run on %s: %w", i.Name, err)
	}
	return out, hostKey, err
}

// knock connects as soon as somebody listens.
func (l *Lab) knock(ctx context.Context, address string) (conn net.Conn, err error) {
	limited, cancel := context.WithTimeout(ctx, sshPatience)
	defer cancel()
	var refused error
	err = l.await(limited, "sshd", func() (bool, error) {
		conn, refused = l.network.dial(limited, address)
		return refused == nil, nil
	})
	if err != nil {
		return nil, errors.Join(err, refused)
	}
	return conn, nil
}
