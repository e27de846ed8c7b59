package nodeapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"strings"
	"sync"
	"time"

	"kamino.dev/kamino/agent/disk"
)

// plugin is a program that gives kubelet its token, as a kubeconfig of EKS names one
// (https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins).
// It is executed for the running machine only: kubelet executes the same with the same rights.
type plugin struct {
	APIVersion string   `yaml:"apiVersion"`
	Command    string   `yaml:"command"`
	Args       []string `yaml:"args"`
	Env        []struct {
		Name  string `yaml:"name"`
		Value string `yaml:"value"`
	} `yaml:"env"`

	mu    sync.Mutex
	token string
	ends  time.Time // zero: when the API server refuses it
	dead  error     // why it is not executed
}

const (
	// pluginMost bounds one call: the AWS CLI takes a second, and its metadata service a few more.
	pluginMost = 30 * time.Second
	// pluginEarly is how long before its end a token is not used any more.
	pluginEarly = time.Minute
	// pluginHome is memory: what a plugin caches in its home must not come to a disk that is being
	// sealed (awscli/telemetry.py keeps a session below ~/.aws).
	pluginHome = "/run/kamino/plugin"
)

// Plugin reports whether a program gives the token.
func (c *Credentials) Plugin() bool { return c.plugin != nil }

// check completes what the kubeconfig at name says. Whose disk is not the running machine's cannot
// be asked for a token, and that is an error only when somebody asks.
func (p *plugin) check(d *disk.Disk, name string) error {
	if p.Command == "" {
		return errors.New("exec: no command")
	}
	if strings.Contains(p.Command, "/") && !path.IsAbs(p.Command) {
		p.Command = path.Join("/", path.Dir(name), p.Command)
	}
	if !d.Live() {
		p.dead = fmt.Errorf("exec: %s is executed on the running machine only", p.Command)
	}
	return nil
}

// get is a token that is valid for pluginEarly at least.
func (p *plugin) get(ctx context.Context) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead != nil {
		return "", p.dead
	}
	if p.token != "" && (p.ends.IsZero() || time.Until(p.ends) > pluginEarly) {
		return p.token, nil
	}
	ctx, cancel := context.WithTimeout(ctx, pluginMost)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.Command, p.Args...)
	cmd.Env = append(os.Environ(), "HOME="+pluginHome,
		`KUBERNETES_EXEC_INFO={"apiVersion":"`+p.APIVersion+`","kind":"ExecCredential","spec":{"interactive":false}}`)
	for _, e := range p.Env {
		cmd.Env = append(cmd.Env, e.Name+"="+e.Value)
	}
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &problems, time.Second
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("get kubelet's token by %s: %w: %s", p.Command, err, reason(bytes.TrimSpace(problems.Bytes())))
	}
	var answer struct {
		Kind   string `json:"kind"`
		Status struct {
			Token string    `json:"token"`
			Ends  time.Time `json:"expirationTimestamp"`
		} `json:"status"`
	}
	if err := json.Unmarshal(out.Bytes(), &answer); err != nil || answer.Kind != "ExecCredential" || answer.Status.Token == "" {
		return "", fmt.Errorf("get kubelet's token by %s: its answer is not an ExecCredential with a token", p.Command)
	}
	p.token, p.ends = answer.Status.Token, answer.Status.Ends
	return p.token, nil
}

// forget drops a token that the API server refused.
func (p *plugin) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.token = ""
}
