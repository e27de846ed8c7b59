package firstboot

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"kamino.dev/kamino/agent/disk"
)

const (
	sshDir = "etc/ssh"
	// sshNowPath is in memory: kamino-ssh-keys.service runs only where it is, and has ssh-keygen
	// make all types of keys.
	sshNowPath = "run/kamino/ssh-keygen"
)

// hostKeys are the types that are made here, in no time; sshd serves with them. An RSA key would
// take a processor for seconds beside kubelet's start: kamino-ssh-rsa.timer has it made later.
var hostKeys = []keyType{
	{"ssh-ed25519", "ssh_host_ed25519_key", newEd25519},
	{"ecdsa-sha2-nistp256", "ssh_host_ecdsa_key", newECDSA},
}

type keyType struct {
	kind, file string
	make       func() (sshKey, error)
}

// sshKeys makes the host keys that are missing, where sshd is installed: on a sealed disk there is
// none, and with cloud-init disabled nobody else makes them on Debian and Ubuntu. Access for people
// must not keep a node from working, so what goes wrong is only logged.
func (m *Machine) sshKeys() {
	if info, err := m.Disk.Lstat(sshDir); err != nil || !info.IsDir() {
		return
	}
	made := false
	for _, k := range hostKeys {
		if m.Disk.Exists(sshDir + "/" + k.file) {
			continue
		}
		key, err := k.make()
		if err == nil {
			err = errors.Join(m.Disk.WriteFile(sshDir+"/"+k.file+".pub", key.public(), 0o644),
				m.Disk.WriteFile(sshDir+"/"+k.file, key.private(), 0o600))
		}
		if err != nil {
			m.Log.Error("SSH host key was not made", "type", k.kind, "error", err)
			continue
		}
		made = true
	}
	if made && needsOtherKeys(m.Disk) {
		if err := m.Disk.WriteFile(sshNowPath, nil, 0o644); err != nil {
			m.Log.Error("ssh-keygen is not asked for the other keys", "error", err)
		}
	}
}

// needsOtherKeys reports whether sshd's configuration lets it serve with none of our keys: all
// HostKey lines name others, or HostKeyAlgorithms is a list of others (sshd_config(5)). A list that
// begins with +, - or ^ only changes the default.
func needsOtherKeys(d *disk.Disk) bool {
	files, _ := d.Glob(sshDir + "/sshd_config.d/*.conf") // a pattern of ours is never malformed
	var named, ours, excluded bool
	for _, f := range append([]string{sshDir + "/sshd_config"}, files...) {
		for line := range strings.Lines(d.Text(f)) {
			field := strings.FieldsFunc(line, func(r rune) bool {
				return r == ' ' || r == '\t' || r == '=' || r == '\n' ||
					r == '\r' || r == '"'
			})
			if len(field) < 2 {
				continue
			}
			switch strings.ToLower(field[0]) {
			case "hostkey":
				named = true
				ours = ours || slices.ContainsFunc(hostKeys, func(k keyType) bool { return field[1] == "/"+sshDir+"/"+k.file })
			case "hostkeyalgorithms":
				list := field[1]
				excluded = !strings.ContainsAny(list[:1], "+-^") &&
					!slices.ContainsFunc(hostKeys, func(k keyType) bool { return strings.Contains(list, k.kind) })
			}
		}
	}
	return named && !ours || excluded
}

// sshKey is a key pair in the parts that OpenSSH's formats are made of: the public ones, which the
// private section repeats in its own order, and the secret one.
type sshKey struct {
	blob   []byte // RFC 4253, section 6.6; RFC 5656, section 3.1; RFC 8709, section 4
	secret []byte // what stands in the private section behind the check numbers, before the comment
}

func newEd25519() (sshKey, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return sshKey{}, fmt.Errorf("generate Ed25519 key: %w", err)
	}
	kind := []byte("ssh-ed25519")
	return sshKey{words(kind, public), words(kind, public, private)}, nil
}

func newECDSA() (sshKey, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return sshKey{}, fmt.Errorf("generate ECDSA key: %w", err)
	}
	point, err := private.PublicKey.Bytes()
	if err != nil {
		return sshKey{}, fmt.Errorf("encode ECDSA key: %w", err)
	}
	scalar, err := private.Bytes()
	if err != nil {
		return sshKey{}, fmt.Errorf("encode ECDSA key: %w", err)
	}
	kind, curve := []byte("ecdsa-sha2-nistp256"), []byte("nistp256")
	return sshKey{words(kind, curve, point), words(kind, curve, point, mpint(scalar))}, nil
}

// words joins strings as the protocol does: each behind its length (RFC 4251, section 5).
func words(all ...[]byte) (out []byte) {
	for _, w := range all {
		out = append(binary.BigEndian.AppendUint32(out, uint32(len(w))), w...)
	}
	return out
}

// mpint is a positive number without leading zeros, but one where the first bit would be taken for
// the sign (RFC 4251).
func mpint(number []byte) []byte {
	short := new(big.Int).SetBytes(number).Bytes()
	if len(short) > 0 && short[0]&0x80 != 0 {
		return append([]byte{0}, short...)
	}
	return short
}

// public is a line of ssh_host_*_key.pub, without a comment.
func (k sshKey) public() []byte {
	kind := k.blob[4 : 4+binary.BigEndian.Uint32(k.blob)]
	return fmt.Appendf(nil, "%s %s\n", kind, base64.StdEncoding.EncodeToString(k.blob))
}

// private is the file of a key that is not encrypted, in OpenSSH's own form (its PROTOCOL.key).
func (k sshKey) private() []byte {
	var check [4]byte
	_, _ = rand.Read(check[:]) // never fails: crypto/rand.Read
	section := append(append(append([]byte{}, check[:]...), check[:]...), k.secret...)
	section = append(section, words(nil)...) // no comment
	for n := byte(1); len(section)%8 != 0; n++ {
		section = append(section, n)
	}
	out := append([]byte("openssh-key-v1\x00"), words([]byte("none"), []byte("none"), nil)...)
	out = binary.BigEndian.AppendUint32(out, 1)
	out = append(out, words(k.blob, section)...)
	return pem.EncodeToMemory(&pem.Block{Type: "OPENSSH PRIVATE KEY", Bytes: out})
}
