package seal

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// PolicyEnv is the environment variable that brings a run's policy to the agent: base64 of gzip of
// a SealConfig.
const PolicyEnv = "KAMINO_SEAL_POLICY"

// PolicyMost bounds a policy, in bytes of YAML.
const PolicyMost = 64 << 10

// DecodePolicy reads what PolicyEnv brings. Nothing is no policy.
func DecodePolicy(text string) ([]byte, error) {
	if text == "" {
		return nil, nil
	}
	packed, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("decode seal policy: %w", err)
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("decode seal policy: %w", err)
	}
	data, err := io.ReadAll(io.LimitReader(z, PolicyMost+1))
	if err != nil {
		return nil, fmt.Errorf("decode seal policy: %w", err)
	}
	return data, nil
}

// EncodePolicy is the reverse of DecodePolicy.
func EncodePolicy(data []byte) (string, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(data); err != nil {
		return "", err
	}
	if err := z.Close(); err != nil {
		return "", err
	}
	return base64.StdEncoding.EncodeToString(b.Bytes()), nil
}

// ParsePolicy reads the SealConfig that a run brings.
func ParsePolicy(data []byte) (Config, error) {
	if len(data) > PolicyMost {
		return Config{}, fmt.Errorf("decode seal policy: larger than %d bytes; fold entries of verify.known into directories", PolicyMost)
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return Config{}, errors.New("decode seal policy: the document is empty")
	}
	c, err := decode(data)
	if err != nil {
		return c, fmt.Errorf("seal policy: %w", err)
	}
	c.Policy = sumOf(data)
	c.fill()
	return c, c.validate()
}

// Restrict lets the configuration on the disk that is judged make a run's policy stricter, and
// nothing else. ignored says what of it does not count. A setting of the disk's that contradicts
// the policy's is an error: to ignore it would seal the disk in another way than its operator
// expects.
func (c Config) Restrict(own Config) (restricted Config, ignored []string, err error) {
	for _, r := range own.Rules {
		if slices.ContainsFunc(c.Rules, func(have ExtraRule) bool { return have.ID == r.ID }) {
			return c, nil, fmt.Errorf("rule %s is both in the run's policy and in /%s; give one of them another id", r.ID, ConfigPath)
		}
		c.Rules = append(slices.Clone(c.Rules), r)
	}
	c.Stop = append(slices.Clone(c.Stop), own.Stop...)
	for _, f := range []struct {
		name, own  string
		value      *string
		stricter   string
		undeclared bool
	}{
		{"firstBoot", own.FirstBoot, &c.FirstBoot, "", own.given.FirstBoot == ""},
		{"join", own.Join, &c.Join, JoinFresh, own.given.Join == ""},
		{"freeSpace", own.FreeSpace, &c.FreeSpace, FreeZero, own.given.FreeSpace == ""},
		{"verify.unknown", own.Verify.Unknown, &c.Verify.Unknown, UnknownRefuse, own.given.Unknown == ""},
		{"sources", strings.Join(own.Sources, ","), new(strings.Join(c.Sources, ",")), "", own.given.Sources == 0},
	} {
		switch {
		case f.undeclared || f.own == *f.value:
		case f.stricter != "" && f.own == f.stricter:
			*f.value = f.own
		default:
			return c, nil, fmt.Errorf("/%s on the disk says %s: %s, the run's seal policy %s; a disk can make the policy only stricter: set it in the policy", ConfigPath, f.name, f.own, *f.value)
		}
	}
	for _, e := range own.Exceptions {
		ignored = append(ignored, "exception of rule "+e.Rule)
	}
	for _, a := range own.Verify.Allow {
		ignored = append(ignored, "verify.allow "+a.Path)
	}
	for _, k := range own.Verify.Known {
		ignored = append(ignored, "verify.known "+k.Path)
	}
	return c, ignored, c.validate()
}
