package seal

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"path"
	"strings"

	"kamino.dev/kamino/agent/inventory"
	"kamino.dev/kamino/agent/scan"
	"kamino.dev/kamino/agent/strict"
	"kamino.dev/kamino/internal/lazyregexp"
)

// Who does what on a clone's first boot.
const (
	// FirstBootAgent: cloud-init and the extension agent's provisioning are off, the agent does
	// their part.
	FirstBootAgent = "agent"
	// FirstBootCloudInit: they stay, and the agent does only what they do not.
	FirstBootCloudInit = "cloud-init"
)

// Whether the client credential that kubelet uses is the donor's own or the cluster's.
const (
	// JoinAuto is JoinFresh if the credential is the node's own; otherwise somebody has to say
	// which it is.
	JoinAuto = "auto"
	// JoinKeep: the nodes share one credential, as aks-engine's do; it travels in the image.
	JoinKeep = "keep"
	// JoinFresh: every clone obtains its own, by the join method of its NodeConfig.
	JoinFresh = "fresh"
)

// ConfigPath is where seal looks for its configuration on the donor's disk.
const ConfigPath = "etc/kamino/seal.yaml"

// allowIn is where an operator allows what refuses a seal. Beside a policy the file on the disk can
// only make things stricter.
const allowIn = "the seal policy (--seal-policy), or in /" + ConfigPath + " if the run has none"

// Config adapts the seal to a pool. Every field is optional.
type Config struct {
	APIVersion string      `yaml:"apiVersion"`
	Kind       string      `yaml:"kind"`
	FirstBoot  string      `yaml:"firstBoot,omitempty"`
	Join       string      `yaml:"join,omitempty"`
	FreeSpace  string      `yaml:"freeSpace,omitempty"`
	Sources    []string    `yaml:"sources,omitempty"` // where clones find their NodeConfig, tried in order
	Stop       []string    `yaml:"stop,omitempty"`    // units to stop besides the known ones
	Rules      []ExtraRule `yaml:"rules,omitempty"`
	Exceptions []Exception `yaml:"exceptions,omitempty"`
	Verify     VerifyRules `yaml:"verify,omitempty"`

	// Policy is the SHA-256 in hex of the policy that a run brought; empty where none did.
	Policy string `yaml:"-"`

	given given
}

// given are the settings that a document has itself, before the defaults.
type given struct {
	FirstBoot, Join, FreeSpace, Unknown string
	Sources                             int
}

// ExtraRule is a rule of the operator's.
type ExtraRule struct {
	ID     string   `yaml:"id"`
	Paths  []string `yaml:"paths"`
	Keep   []string `yaml:"keep,omitempty"`
	Action Action   `yaml:"action"` // remove or truncate
	Secret bool     `yaml:"secret,omitempty"`
	Why    string   `yaml:"why"`
}

// Exception takes paths out of a rule; without paths the whole rule. What stays is scanned all the
// same, and one kind of finding is allowed there.
type Exception struct {
	Rule  string   `yaml:"rule"`
	Paths []string `yaml:"paths,omitempty"`
	Kind  string   `yaml:"kind,omitempty"` // empty: sensitive-place, that something is there at all
	Why   string   `yaml:"why"`
}

// VerifyRules adapt the scan.
type VerifyRules struct {
	// Unknown says what to do about files that nothing explains: refuse or report.
	Unknown string            `yaml:"unknown,omitempty"`
	Known   []inventory.Known `yaml:"known,omitempty"`
	Allow   []Allowed         `yaml:"allow,omitempty"`
}

// Unreviewed counts the entries of verify.known that nobody has looked at yet.
func (c Config) Unreviewed() (n int) {
	for _, k := range c.Verify.Known {
		if k.Reviewed != nil && !*k.Reviewed {
			n++
		}
	}
	return n
}

// Allowed is what may stay on the disk though the scan finds it.
type Allowed struct {
	Path string `yaml:"path"` // pattern; a directory allows what is below it
	Kind string `yaml:"kind"` // one kind of finding
	Why  string `yaml:"why"`
}

// ParseConfig decodes strictly: an unknown field is an error with its line. An empty document is
// the default.
func ParseConfig(data []byte) (Config, error) {
	c, err := decode(data)
	if err != nil {
		return c, err
	}
	c.fill()
	return c, c.validate()
}

func decode(data []byte) (Config, error) {
	var c Config
	if err := strict.Decode(data, &c); err != nil && !errors.Is(err, strict.ErrEmpty) {
		return c, fmt.Errorf("decode SealConfig: %w", err)
	}
	if len(bytes.TrimSpace(data)) > 0 && (c.APIVersion != "kamino.dev/v1alpha1" || c.Kind != "SealConfig") {
		return c, fmt.Errorf("decode SealConfig: apiVersion and kind are %q and %q; write kamino.dev/v1alpha1 and SealConfig",
			c.APIVersion, c.Kind)
	}
	c.given = given{c.FirstBoot, c.Join, c.FreeSpace, c.Verify.Unknown, len(c.Sources)}
	return c, nil
}

// fill sets the defaults.
func (c *Config) fill() {
	c.FirstBoot = cmp.Or(c.FirstBoot, FirstBootAgent)
	c.Join = cmp.Or(c.Join, JoinAuto)
	c.FreeSpace = cmp.Or(c.FreeSpace, FreeZero)
	c.Verify.Unknown = cmp.Or(c.Verify.Unknown, UnknownRefuse)
	if len(c.Sources) == 0 {
		c.Sources = []string{"imds://userData", "file:///etc/kamino/nodeconfig.yaml"}
	}
}

// Adapt settles, for a disk of EC2, who does what at the first boot. There it is cloud-init, as on
// the donor's own: it runs the scripts of the user data, and it configures the primary network card
// only, where a match by driver, which the agent writes on Azure, would take the cards that a CNI
// attaches for pods.
func (c *Config) Adapt(ec2 bool) error {
	if !ec2 {
		return nil
	}
	if c.given.FirstBoot == FirstBootAgent {
		return errors.New("firstBoot: agent is for Azure; on EC2 the network and the scripts of user data are cloud-init's: write firstBoot: cloud-init, or omit it")
	}
	c.FirstBoot = FirstBootCloudInit
	return nil
}

var ruleID = lazyregexp.New(`^[a-z0-9]+(-[a-z0-9]+)*$`)

func (c Config) validate() error {
	if err := oneOf("firstBoot", c.FirstBoot, FirstBootAgent, FirstBootCloudInit); err != nil {
		return err
	}
	if err := oneOf("join", c.Join, JoinAuto, JoinKeep, JoinFresh); err != nil {
		return err
	}
	if err := oneOf("freeSpace", c.FreeSpace, FreeAuto, FreeTrim, FreeZero, FreeNone); err != nil {
		return err
	}
	if err := oneOf("verify.unknown", c.Verify.Unknown, UnknownRefuse, UnknownReport); err != nil {
		return err
	}
	for i, k := range c.Verify.Known {
		if err := k.Validate(); err != nil {
			return fmt.Errorf("verify.known[%d]: %w", i, err)
		}
	}
	known := map[string]Rule{}
	for _, r := range Table() {
		known[r.ID] = r
	}
	for i, r := range c.Rules {
		at := fmt.Sprintf("rules[%d]", i)
		if _, taken := known[r.ID]; taken || !ruleID.MatchString(r.ID) {
			return fmt.Errorf("%s.id: %q must be lower-case words joined by hyphens and not a rule's of the table", at, r.ID)
		}
		known[r.ID] = r.rule()
		if r.Why == "" || len(r.Paths) == 0 {
			return fmt.Errorf("%s (%s): paths and why are required", at, r.ID)
		}
		if err := oneOf(at+".action", string(r.Action), string(Remove), string(Truncate)); err != nil {
			return err
		}
		if err := absolute(at+".paths", append(append([]string{}, r.Paths...), r.Keep...)); err != nil {
			return err
		}
		if err := r.rule().sparesOwn(); err != nil {
			return fmt.Errorf("%s.paths: %w", at, err)
		}
	}
	for i, e := range c.Exceptions {
		r, ok := known[e.Rule]
		if !ok {
			return fmt.Errorf("exceptions[%d].rule: there is no rule %q; `kamino-agent rules` lists them", i, e.Rule)
		}
		if e.Why == "" {
			return fmt.Errorf("exceptions[%d] (%s): why is required", i, e.Rule)
		}
		if err := absolute(fmt.Sprintf("exceptions[%d].paths", i), e.Paths); err != nil {
			return err
		}
		for _, p := range e.Paths {
			if len(r.narrowed(Exception{Paths: []string{p}, Kind: e.Kind})) == 0 {
				return fmt.Errorf("exceptions[%d].paths: rule %s takes nothing at %s; `kamino-agent rules` lists its paths", i, e.Rule, p)
			}
		}
		if err := oneOf(fmt.Sprintf("exceptions[%d].kind", i), cmp.Or(e.Kind, sensitivePlace), scan.Kinds()...); err != nil {
			return err
		}
	}
	for i, a := range c.Verify.Allow {
		if a.Why == "" {
			return fmt.Errorf("verify.allow[%d]: why is required", i)
		}
		if err := absolute(fmt.Sprintf("verify.allow[%d].path", i), []string{a.Path}); err != nil {
			return err
		}
		if err := oneOf(fmt.Sprintf("verify.allow[%d].kind", i), a.Kind, scan.Kinds()...); err != nil {
			return err
		}
	}
	return nil
}

func oneOf(field, value string, allowed ...string) error {
	for _, a := range allowed {
		if value == a {
			return nil
		}
	}
	return fmt.Errorf("%s: %q is not one of %s", field, value, strings.Join(allowed, ", "))
}

func absolute(field string, patterns []string) error {
	for _, p := range patterns {
		if !strings.HasPrefix(p, "/") || path.Clean(p) != p || p == "/" {
			return fmt.Errorf("%s: %q must be an absolute path without . or .. and not the root", field, p)
		}
		if _, err := path.Match(p, ""); err != nil {
			return fmt.Errorf("%s: %q: %w", field, p, err)
		}
	}
	return nil
}

// configured is the group of an operator's rules.
const configured = "Configured"

// rules is the table with the operator's rules before machine-id, which stays last.
func (c Config) rules() []Rule {
	table := Table()
	all := append([]Rule{}, table[:len(table)-1]...)
	for _, r := range c.Rules {
		all = append(all, r.rule())
	}
	return append(all, table[len(table)-1])
}

func (r ExtraRule) rule() Rule {
	return Rule{ID: r.ID, Group: configured, Paths: r.Paths, Keep: r.Keep, Action: r.Action, Phase: Donor, Secret: r.Secret, Why: r.Why}
}
