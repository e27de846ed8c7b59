package aws

import (
	"bytes"
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
	"strconv"
	"strings"

	"kamino.dev/kamino"
	"kamino.dev/kamino/agent/userdata"
)

// maxUserData is in bytes before base64
// (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-add-user-data.html).
const maxUserData = 16 << 10

// nodeConfig is the media type of the configuration that nodeadm of EKS reads at each boot. It
// merges those of several parts, and appends their flags in their order (amazon-eks-ami 81fec2e,
// nodeadm/internal/api/merge.go; read, not run).
const nodeConfig = userdata.NodeadmType

// nodeadmDocument is a NodeConfig of EKS, where it is the whole user data.
var nodeadmDocument = regexp.MustCompile(`(?m)^apiVersion:[ \t]*["']?node\.eks\.aws/`)

const registerTaints = "register-with-taints"

// ownTaints is that flag, or its field in a configuration of kubelet
// (https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/).
var ownTaints = regexp.MustCompile(`(?i)register-?with-?taints`)

// canaryConfig registers the node with the taint of canaries, and out of load balancers, from its
// first second. The kubelet adds the labels of a second flag to those of the first
// (k8s.io/component-base/cli/flag, ConfigurationMap). The nonce is for the agent: EC2 shows a
// guest no tags whose keys have a slash, and Kubernetes' have one.
func canaryConfig(nonce string) string {
	return userdata.NonceComment + nonce + "\napiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  kubelet:\n    flags:\n      - --" + registerTaints + "=" + kamino.TaintCanary +
		"=:NoSchedule\n      - --node-labels=" + kamino.LabelCanary + "=true\n"
}

// part is one of a multipart user data.
type part struct {
	header textproto.MIMEHeader
	body   []byte
}

// taintedUserData is a pool's user data, in base64, with one part more that asks for the taint. It
// refuses what it does not understand: a canary without the taint would get pods. What the agent reads
// it reads by the agent's own functions, so that it refuses what a node would refuse.
func taintedUserData(encoded, nonce string) (tainted string, refusal *kamino.Refusal) {
	refuse := func(why, do string) (string, *kamino.Refusal) {
		return "", &kamino.Refusal{Code: "user-data", Field: "UserData", Why: why, Do: do}
	}
	const change = "let the launch template have a NodeConfig as user data, or a MIME multipart with one"
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return refuse("the user data of the launch template is not base64", "correct the template")
	}
	const unreadable = "the user data of the launch template is not a readable MIME multipart: "
	user, err := userdata.Read(raw)
	if err != nil {
		return refuse(unreadable+err.Error(), change)
	}
	config, err := user.NodeConfig()
	if len(bytes.TrimSpace(config)) == 0 { // a node passes a blank one over
		config = nil
	} else if err == nil {
		_, err = userdata.Parse(config)
	}
	if err != nil {
		return refuse("kamino-agent refuses the user data on each node: "+err.Error(),
			"correct the launch template; to check it on a node: kamino-agent userdata --file FILE")
	}
	if user.Nonce() != "" {
		return refuse("the user data has a line that begins with "+strconv.Quote(userdata.NonceComment)+
			": every node of the pool would be taken for a canary", "remove the line from the launch template")
	}
	var whole []byte
	switch parts, err := readBare(raw); {
	case err == nil && has(parts, nodeConfig):
		for i, p := range parts {
			if own, err := p.ownTaints(); err != nil {
				return refuse(fmt.Sprintf("part %d of the user data cannot be read: %v", i+1, err), change)
			} else if own {
				return refuse("the user data registers nodes with taints of its own, which a canary's would replace",
					"remove these taints from the user data")
			}
		}
		if whole, err = writeParts(append(parts, part{textproto.MIMEHeader{"Content-Type": {nodeConfig}},
			[]byte(canaryConfig(nonce))})); err != nil {
			return refuse("the user data cannot be rewritten: "+err.Error(), change)
		}
	case config != nil: // the agent itself lets kubelet ask for taint and label
		whole = user.With(userdata.CanaryType, userdata.NonceComment+nonce)
	case err != nil:
		return refuse(unreadable+err.Error(), change)
	default:
		return refuse("the user data has no NodeConfig, neither of EKS nor of kamino-agent, and how else a node registers with a taint is not known", change)
	}
	if len(whole) > maxUserData {
		return refuse(fmt.Sprintf("with the part that asks for a canary's taint the user data has %d bytes, at most %d are allowed",
			len(whole), maxUserData), "make it shorter")
	}
	return base64.StdEncoding.EncodeToString(whole), nil
}

// readBare reads user data as nodeadm does: a multipart, or one NodeConfig of EKS and nothing else, in
// base64 or gzip too (amazon-eks-ami, nodeadm/internal/configprovider/mime.go, ParseMaybeMultipart;
// read, not run). A script may write a NodeConfig: a canary that does not run the script is none of
// the pool's machines.
func readBare(raw []byte) ([]part, error) {
	parts, whole := readParts(raw)
	for range mostLayers {
		if whole == nil || bytes.HasPrefix(raw, []byte("#!")) {
			break
		}
		if nodeadmDocument.Match(raw) {
			return []part{{textproto.MIMEHeader{"Content-Type": {nodeConfig}}, raw}}, nil
		}
		inner, err := userdata.Unpacked(raw)
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

// mostLayers bounds how often something is unpacked.
const mostLayers = 4

// ownTaints says whether a part, a script included, has nodes registered with taints. Like nodeadm,
// cloud-init and the agent it unpacks what is in base64 or gzip, whether or not the part says so.
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
		inner, err := userdata.Unpacked(body)
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
