package platform

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"regexp"
	"strings"
)

// Media types of the parts of EC2's user data that configure a node: ours, and that of EKS's
// nodeadm. cloud-init skips types that it does not know
// (https://cloudinit.readthedocs.io/en/latest/explanation/format.html).
const (
	NodeConfigType = "application/node.kamino.dev"
	nodeadmType    = "application/node.eks.aws"
	// canaryType is of the part that a canary's user data has besides its pool's, where that is for
	// this agent.
	canaryType = "application/canary.kamino.dev"
)

// UserData are the parts of EC2's user data.
type UserData []userPart

type userPart struct {
	kind string // media type; empty: the whole is one document
	data []byte
}

// ReadUserData takes user data apart: a MIME multipart, or one document. Both, and each part, may
// be in base64 or gzip, as nodeadm and cloud-init read them (amazon-eks-ami 81fec2e,
// nodeadm/internal/configprovider).
func ReadUserData(raw []byte) (UserData, error) {
	raw, err := unpacked(raw)
	if err != nil {
		return nil, fmt.Errorf("decode user data: %w", err)
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil, nil
	}
	message, err := mail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		return UserData{{data: raw}}, nil
	}
	kind, parameters, err := mime.ParseMediaType(message.Header.Get("Content-Type"))
	if err != nil || !strings.HasPrefix(kind, "multipart/") {
		return UserData{{data: raw}}, nil
	}
	var all UserData
	for reader := multipart.NewReader(message.Body, parameters["boundary"]); ; {
		p, err := reader.NextPart()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("decode user data: part %d: %w", len(all)+1, err)
		}
		data, err := io.ReadAll(io.LimitReader(p, metadataMost))
		if err != nil {
			return nil, fmt.Errorf("decode user data: part %d: %w", len(all)+1, err)
		}
		kind, _, _ := mime.ParseMediaType(p.Header.Get("Content-Type")) // of no known type, then
		if strings.EqualFold(p.Header.Get("Content-Transfer-Encoding"), "base64") || kind == NodeConfigType || kind == nodeadmType {
			if data, err = unpacked(data); err != nil {
				return nil, fmt.Errorf("decode user data: part %d: %w", len(all)+1, err)
			}
		}
		all = append(all, userPart{kind, data})
	}
}

// unpacked undoes base64 and gzip where they are.
func unpacked(data []byte) ([]byte, error) {
	if plain, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(string(data)), "")); err == nil {
		data = plain
	}
	if !bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		return data, nil
	}
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	plain, err := io.ReadAll(io.LimitReader(r, metadataMost+1))
	if err == nil && len(plain) > metadataMost {
		err = fmt.Errorf("more than %d bytes when unpacked", metadataMost)
	}
	return plain, err
}

// ours begins a NodeConfig of ours where it is the whole user data.
var ours = regexp.MustCompile(`(?m)^apiVersion:[ \t]*["']?kamino\.dev/`)

// NodeConfig is the part of type NodeConfigType, or the whole where that is a NodeConfig of ours;
// nil when there is none. Two are an error: nobody knows which was meant.
func (u UserData) NodeConfig() (found []byte, err error) {
	for _, p := range u {
		if p.kind != NodeConfigType && (p.kind != "" || !ours.Match(p.data)) {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("decode user data: two parts are of type %s", NodeConfigType)
		}
		found = p.data
	}
	return found, nil
}

// canaryNonce is a comment in the part, for nodeadm or for this agent, that a canary's user data
// has besides its pool's; aws/userdata.go writes it.
var canaryNonce = regexp.MustCompile(`(?m)^# kamino-canary-nonce: ([0-9a-f]{16,128})$`)

// Nonce is the order that made this machine a canary; empty for others.
func (u UserData) Nonce() string {
	for _, p := range u {
		if found := canaryNonce.FindSubmatch(p.data); found != nil && (p.kind == nodeadmType || p.kind == canaryType) {
			return string(found[1])
		}
	}
	return ""
}
