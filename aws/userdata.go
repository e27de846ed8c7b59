package aws

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
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

// A NodeConfig of the agent's, and one of EKS, where it is the whole user data.
var (
	agentDocument   = regexp.MustCompile(`(?m)^apiVersion:[ \t]*["']?kamino\.dev/`)
	nodeadmDocument = regexp.MustCompile(`(?m)^apiVersion:[ \t]*["']?node\.eks\.aws/`)
)

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
func taintedUserData(encoded, nonce string) (tainted string, refusal *kamino.Refusal) {
	refuse := func(why, do string) (string, *kamino.Refusal) {
		return "", &kamino.Refusal{Code: "user-data", Field: "UserData", Why: why, Do: do}
	}
	const inPool = "prove versions in the pool"
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return refuse("the user data of the launch template is not base64", "correct the template")
	}
	parts, err := readBare(raw)
	more := part{textproto.MIMEHeader{"Content-Type": {nodeConfig}}, []byte(canaryConfig(nonce))}
	switch {
	case err != nil:
		return refuse("the user data of the launch template is not a readable MIME multipart: "+err.Error(), inPool)
	case has(parts, nodeConfig):
		for i, p := range parts {
			if own, err := p.ownTaints(); err != nil {
				return refuse(fmt.Sprintf("part %d of the user data cannot be read: %v", i+1, err), inPool)
			} else if own {
				return refuse("the user data registers nodes with taints of its own, which a canary's would replace", inPool)
			}
		}
	case has(parts, agentConfig):
		more = part{textproto.MIMEHeader{"Content-Type": {agentCanary}}, []byte(nonceComment + nonce + "\n")}
	default:
		return refuse("the user data has no NodeConfig, neither of EKS nor of kamino-agent, and how else a node registers with a taint is not known", inPool)
	}
	parts = append(parts, more)
	whole, err := writeParts(parts)
	if err != nil {
		return refuse("the user data cannot be rewritten: "+err.Error(), inPool)
	}
	if len(whole) > maxUserData {
		return refuse(fmt.Sprintf("with the part that asks for a canary's taint the user data has %d bytes, at most %d are allowed", len(whole), maxUserData), "make it shorter, or "+inPool)
	}
	return base64.StdEncoding.EncodeToString(whole), nil
}

// readBare reads user data that is a multipart, or one NodeConfig and nothing else, in base64 or
// gzip too. nodeadm reads the same (amazon-eks-ami, nodeadm/internal/configprovider/mime.go,
// ParseMaybeMultipart; read, not run). A script may write a NodeConfig: a canary that does not run
// the script is none of the pool's machines.
func readBare(raw []byte) ([]part, error) {
	parts, whole := readParts(raw)
	for range mostLayers {
		if whole == nil || bytes.HasPrefix(raw, []byte("#!")) {
			break
		}
		for kind, document := range map[string]*regexp.Regexp{agentConfig: agentDocument, nodeConfig: nodeadmDocument} {
			if document.Match(raw) {
				return []part{{textproto.MIMEHeader{"Content-Type": {kind}}, raw}}, nil
			}
		}
		inner, err := unpacked(raw)
		if err != nil || bytes.Equal(inner, raw) {
			break
		}
		raw = inner
		if found, err := readParts(raw); err == nil {
			return found, nil
		}
	}
	return parts, whole
}

// mostUnpacked bounds what is unpacked, as the agent does; mostLayers how often.
const (
	mostUnpacked = 1 << 20
	mostLayers   = 4
)

// ownTaints says whether a part, a script included, has nodes registered with taints. Like nodeadm,
// cloud-init and the agent (agent/platform, ReadUserData) it unpacks what is in base64 or gzip,
// whether or not the part says so.
func (p part) ownTaints() (bool, error) {
	body := p.body
	switch coding := strings.ToLower(strings.TrimSpace(p.header.Get("Content-Transfer-Encoding"))); coding {
	case "", "7bit", "8bit", "binary", "base64":
	case "quoted-printable":
		var err error
		if body, err = io.ReadAll(quotedprintable.NewReader(bytes.NewReader(body))); err != nil {
			return false, err
		}
	default:
		return false, fmt.Errorf("encoding %q is unknown", coding)
	}
	if media, _, _ := mime.ParseMediaType(p.header.Get("Content-Type")); strings.HasPrefix(media, "multipart/") {
		return false, errors.New("it has parts of its own")
	}
	for range mostLayers {
		if ownTaints.Match(body) {
			return true, nil
		}
		inner, err := unpacked(body)
		if err != nil {
			return false, err
		}
		if bytes.Equal(inner, body) {
			return false, nil
		}
		body = inner
	}
	return false, fmt.Errorf("it is packed more than %d times", mostLayers)
}

// unpacked undoes base64 or gzip, where data is in one of them.
func unpacked(data []byte) ([]byte, error) {
	if plain, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(string(data)), "")); err == nil {
		return plain, nil
	}
	if !bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		return data, nil
	}
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	plain, err := io.ReadAll(io.LimitReader(r, mostUnpacked+1))
	if err == nil && len(plain) > mostUnpacked {
		err = fmt.Errorf("more than %d bytes when unpacked", mostUnpacked)
	}
	return plain, err
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
