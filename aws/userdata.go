package aws

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"net/textproto"
	"regexp"
	"slices"
	"strings"

	"kamino.dev/kamino"
)

// maxUserData is in bytes before base64
// (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-add-user-data.html).
const maxUserData = 16 << 10

// nodeConfig is the media type of the configuration that nodeadm of EKS reads at each boot. It
// merges those of several parts, and appends their flags in their order (amazon-eks-ami 81fec2e,
// nodeadm/internal/api/merge.go; read, not run).
const nodeConfig = "application/node.eks.aws"

// Media types of the agent (agent/platform/userdata.go): of its own NodeConfig, and of what makes a
// canary of a machine that has one. The agent itself lets kubelet ask for taint and label there.
const (
	agentConfig = "application/node.kamino.dev"
	agentCanary = "application/canary.kamino.dev"
)

// agentDocument begins a NodeConfig of the agent's where it is the whole user data.
var agentDocument = regexp.MustCompile(`(?m)^apiVersion:[ \t]*["']?kamino\.dev/`)

const registerTaints = "register-with-taints"

// ownTaints is that flag, or its field in a configuration of kubelet
// (https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/).
var ownTaints = regexp.MustCompile(`(?i)register-?with-?taints`)

// canaryConfig registers the node with the taint of canaries, and out of load balancers, from its
// first second. The kubelet adds the labels of a second flag to those of the first
// (k8s.io/component-base/cli/flag, ConfigurationMap). The nonce is for the agent: EC2 shows a
// guest no tags whose keys have a slash, and Kubernetes' have one.
func canaryConfig(nonce string) string {
	return nonceComment + nonce + "\napiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  kubelet:\n    flags:\n      - --" + registerTaints + "=" + kamino.TaintCanary +
		"=:NoSchedule\n      - --node-labels=" + kamino.LabelCanary + "=true\n"
}

// nonceComment begins the line with the nonce that the agent's report repeats; agent/platform reads
// it.
const nonceComment = "# kamino-canary-nonce: "

// part is one of a multipart user data.
type part struct {
	header textproto.MIMEHeader
	body   []byte
}

// taintedUserData is a pool's user data, in base64, with one part more that asks for the taint. It
// refuses what it does not understand: a canary without the taint would get pods.
func taintedUserData(encoded, nonce string) (string, *kamino.Refusal) {
	refuse := func(why, do string) (string, *kamino.Refusal) {
		return "", &kamino.Refusal{Code: "user-data", Field: "UserData", Why: why, Do: do}
	}
	const inPool = "prove versions in the pool"
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return refuse("the user data of the launch template is not base64", "correct the template")
	}
	parts, err := readParts(raw)
	if err != nil && agentDocument.Match(raw) {
		parts, err = []part{{textproto.MIMEHeader{"Content-Type": {agentConfig}}, raw}}, nil
	}
	more := part{textproto.MIMEHeader{"Content-Type": {nodeConfig}}, []byte(canaryConfig(nonce))}
	switch {
	case err != nil:
		return refuse("the user data of the launch template is not a readable MIME multipart: "+err.Error(), inPool)
	case has(parts, nodeConfig) && slices.ContainsFunc(parts, part.ownTaints):
		return refuse("the user data registers nodes with taints of its own, which a canary's would replace", inPool)
	case has(parts, nodeConfig):
	case has(parts, agentConfig):
		more = part{textproto.MIMEHeader{"Content-Type": {agentCanary}}, []byte(nonceComment + nonce + "\n")}
	default:
		return refuse("the user data has no NodeConfig, neither of EKS nor of kamino-agent, and how else a node registers with a taint is not known", inPool)
	}
	parts = append(parts, more)
	whole, err := writeParts(parts)
	if err != nil {
		return refuse("the user data cannot be written anew: "+err.Error(), inPool)
	}
	if len(whole) > maxUserData {
		return refuse(fmt.Sprintf("with the part that asks for a canary's taint the user data has %d bytes, at most %d are allowed", len(whole), maxUserData), "make it shorter, or "+inPool)
	}
	return base64.StdEncoding.EncodeToString(whole), nil
}

// ownTaints says whether a part, a script included, has nodes registered with taints.
func (p part) ownTaints() bool {
	if strings.EqualFold(strings.TrimSpace(p.header.Get("Content-Transfer-Encoding")), "base64") {
		if text, err := base64.StdEncoding.DecodeString(string(p.body)); err == nil {
			return ownTaints.Match(text)
		}
	}
	return ownTaints.Match(p.body)
}

// has says whether one of the parts is of a media type.
func has(parts []part, kind string) bool {
	return slices.ContainsFunc(parts, func(p part) bool {
		media, _, err := mime.ParseMediaType(p.header.Get("Content-Type"))
		return err == nil && media == kind
	})
}

func readParts(raw []byte) ([]part, error) {
	message, err := mail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	media, parameters, err := mime.ParseMediaType(message.Header.Get("Content-Type"))
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(media, "multipart/") {
		return nil, fmt.Errorf("its type is %s", media)
	}
	var parts []part
	for reader := multipart.NewReader(message.Body, parameters["boundary"]); ; {
		p, err := reader.NextRawPart()
		if errors.Is(err, io.EOF) {
			return parts, nil
		} else if err != nil {
			return nil, err
		}
		body, err := io.ReadAll(p)
		if err != nil {
			return nil, err
		}
		parts = append(parts, part{p.Header, body})
	}
}

func writeParts(parts []part) ([]byte, error) {
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	// Of the content, so that the same user data is made again: a client token demands it.
	if err := w.SetBoundary("kamino-" + digest(fmt.Sprint(parts))); err != nil {
		return nil, err
	}
	for _, p := range parts {
		to, err := w.CreatePart(p.header)
		if err != nil {
			return nil, err
		}
		if _, err := to.Write(p.body); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	head := "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"" + w.Boundary() + "\"\n\n"
	return append([]byte(head), body.Bytes()...), nil
}
