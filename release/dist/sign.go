package dist

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
)

// The files that vouch for all others.
const (
	sumsFile      = "SHA256SUMS"
	signatureFile = "SHA256SUMS.sig"
)

// NewKeyHint is how a key is made that ReadKey reads.
const NewKeyHint = "openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out release.key"

// ReadKey reads a private key: ECDSA, in PKCS #8 and PEM, as openssl genpkey writes it.
func ReadKey(file string) (*ecdsa.PrivateKey, error) {
	body, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(body)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, fmt.Errorf("%s holds no unencrypted private key in PKCS #8 and PEM; make one with: %s", file, NewKeyHint)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	ec, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s holds a %T, not an ECDSA key; make one with: %s", file, key, NewKeyHint)
	}
	return ec, nil
}

// signer signs with ECDSA over SHA-256, ASN.1, as openssl dgst -sha256 verifies it. The nonce comes
// from the message (RFC 6979): a release that is made twice has the same signatures.
type signer struct{ key *ecdsa.PrivateKey }

func (s signer) Sign(_ context.Context, body []byte) ([]byte, error) {
	sum := sha256.Sum256(body)
	return s.key.Sign(nil, sum[:], crypto.SHA256)
}

// KeyID is how DSSE's verifiers find a key among several.
func (s signer) KeyID() (string, error) { return dsse.SHA256KeyID(&s.key.PublicKey) }

// sums are the checksums of the files so far, by name.
func (r *Release) sums() (map[string]string, error) {
	entries, err := os.ReadDir(r.Out)
	if err != nil {
		return nil, err
	}
	sums := map[string]string{}
	for _, e := range entries {
		body, err := os.ReadFile(filepath.Join(r.Out, e.Name()))
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(body)
		sums[e.Name()] = hex.EncodeToString(sum[:])
	}
	return sums, nil
}

// checksums writes those of all files, as sha256sum reads them, and signs that list: whoever trusts
// it can check everything.
func (r *Release) checksums(ctx context.Context) error {
	sums, err := r.sums()
	if err != nil {
		return err
	}
	var lines []string
	for name, sum := range sums {
		lines = append(lines, sum+"  "+name+"\n")
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[64:], b[64:]) })
	body := []byte(strings.Join(lines, ""))
	if err := r.write(sumsFile, body); err != nil || r.Key == nil {
		return err
	}
	signature, err := signer{r.Key}.Sign(ctx, body)
	if err != nil {
		return errors.Join(errors.New("sign the checksums"), err)
	}
	return r.write(signatureFile, signature)
}
