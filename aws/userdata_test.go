package aws

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"

	"kamino.dev/kamino/agent/userdata"
)

// TestCanaryReadsAsTheNode: user data for kamino-agent gives a canary where a node would read it, and is
// refused with the node's reason where a node would refuse it.
func TestCanaryReadsAsTheNode(t *testing.T) {
	const document = "apiVersion: kamino.dev/v1alpha1\nkind: NodeConfig\ngeneration: 1\njoin: {method: keep}"
	const ours = "Content-Type: application/node.kamino.dev\n\n" + document
	const theirs = "Content-Type: application/node.eks.aws\n\napiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\n"
	multi := func(parts ...string) string {
		return "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=B\n\n--B\n" + strings.Join(parts, "\n--B\n") + "\n--B--\n"
	}
	nonce := strings.Repeat("0f", 32)
	for name, tt := range map[string]struct{ user, why string }{
		"a part":                     {multi("Content-Type: text/x-shellscript\n\n#!/bin/sh\n", ours), ""},
		"the whole":                  {document, ""},
		"JSON":                       {`{"kind":"NodeConfig","apiVersion":"kamino.dev/v1alpha1","generation":1,"join":{"method":"keep"}}`, ""},
		"a part of text/plain":       {multi("Content-Type: text/plain\n\n" + document), ""},
		"no last boundary":           {strings.TrimSuffix(multi(ours), "--B--\n"), ""},
		"no blank line in a script":  {multi("Content-Type: text/x-shellscript\n#!/bin/sh\n", ours), ""},
		"a multipart in a multipart": {multi("Content-Type: multipart/mixed; boundary=C\n\n--C\n" + ours + "\n--C--\n"), ""},
		"blank lines first":          {"\n\n" + multi(ours), ""},
		"base64":                     {base64.StdEncoding.EncodeToString([]byte(multi(ours))), ""},
		"two of them":                {multi(ours, ours), "two parts"},
		"damaged":                    {multi("Content-Type: application/node.kamino.dev\nContent-Transfer-Encoding: base64\n\n!!!"), "MIME part 1"},
		"an unknown field":           {multi(ours + "\nkubelets: {}"), "line 5: unknown field kubelets"},
		"a value that is wrong":      {multi(ours + "\nshare: 101"), "share: 101 is not a percentage"},
		"no way to join":             {multi(strings.Replace(ours, "method: keep", "method: file", 1)), "join.file: required"},
		"wrong beside nodeadm's":     {multi(theirs, ours+"\nshare: 101"), "share: 101 is not a percentage"},
		"a blank part":               {multi("Content-Type: application/node.kamino.dev\n\n \n"), "no NodeConfig"},
		"headers that are indented":  {"  " + strings.ReplaceAll(multi(ours), "\n", "\n  "), "headers are indented"},
		"a boothook that writes it":  {"#cloud-boothook\ncat >/x <<E\n" + document + "\nE\n", "readable MIME multipart"},
		"a canary's own part":        {multi(ours, "Content-Type: application/canary.kamino.dev\n\n"+userdata.NonceComment+strings.Repeat("ab", 32)), "taken for a canary"},
		"nodeadm's of a canary":      {multi("Content-Type: application/node.eks.aws\n\n" + canaryConfig(strings.Repeat("ab", 32))), "taken for a canary"},
	} {
		t.Run(name, func(t *testing.T) {
			tainted, refusal := taintedUserData(base64.StdEncoding.EncodeToString([]byte(tt.user)), nonce)
			if tt.why != "" {
				if refusal == nil || !strings.Contains(refusal.Why, tt.why) || refusal.Do == "" {
					t.Errorf("refused for %+v, want %q", refusal, tt.why)
				}
				return
			}
			if refusal != nil {
				t.Fatalf("refused for %+v", refusal)
			}
			raw, err := base64.StdEncoding.DecodeString(tainted)
			if err != nil {
				t.Fatal(err)
			}
			before, _ := userdata.Read([]byte(tt.user)) // it was read above
			after, err := userdata.Read(raw)
			if err != nil {
				t.Fatal(err)
			}
			want, _ := before.NodeConfig()
			if got, err := after.NodeConfig(); err != nil || !bytes.Equal(bytes.TrimSpace(got), bytes.TrimSpace(want)) || after.Nonce() != nonce || !bytes.Contains(raw, []byte(userdata.CanaryType)) {
				t.Errorf("the node reads %q, %v, nonce %q", got, err, after.Nonce())
			}
		})
	}
}
