// Package docs has the files of this directory that programs read, too: the lab and tests grant
// what the documentation tells people to grant.
package docs

import (
	"bytes"
	_ "embed"
)

// The policies of AWS.
var (
	//go:embed aws-policy.json
	AWSPolicy []byte
	//go:embed aws-policy-canary.json
	canary []byte
	//go:embed aws-policy-by-number.json
	byNumber []byte
)

// AWSCanaryPolicy is what a canary needs besides, with the role of the nodes filled in.
func AWSCanaryPolicy(account, role string) []byte { return filled(canary, account, role) }

// AWSByNumberPolicy is what groups need that name their template's version by number.
func AWSByNumberPolicy(account, role string) []byte { return filled(byNumber, account, role) }

// AWSPolicies are all of them.
func AWSPolicies(account, role string) [][]byte {
	return [][]byte{AWSPolicy, AWSCanaryPolicy(account, role), AWSByNumberPolicy(account, role)}
}

func filled(policy []byte, account, role string) []byte {
	return bytes.ReplaceAll(bytes.ReplaceAll(policy, []byte("ACCOUNT"), []byte(account)), []byte("NODE_ROLE"), []byte(role))
}
