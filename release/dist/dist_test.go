package dist

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	attestation "github.com/in-toto/attestation/go/v1"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"google.golang.org/protobuf/encoding/protojson"

	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
)

// release makes one for this machine's architecture, signed.
func release(t *testing.T, key *ecdsa.PrivateKey) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "release")
	err := Make(t.Context(), Release{
		Source: "../..", Out: out, Version: "1.2.3-rc.1", Commit: strings.Repeat("c0", 20), Time: time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC),
		Registry: "registry.example/k", Targets: Targets[:1], Key: key, Log: io.Discard,
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestRelease(t *testing.T) {
	key := newKey(t)
	dir := release(t, key)
	kaminoFiles := unpack(t, filepath.Join(dir, "kamino_1.2.3-rc.1_linux_amd64.tar.gz"))
	agentFiles := unpack(t, filepath.Join(dir, "kamino-agent_1.2.3-rc.1_linux_amd64.tar.gz"))
	program := filepath.Join(t.TempDir(), "kamino")
	if err := os.WriteFile(program, kaminoFiles["kamino"], 0o755); err != nil {
		t.Fatal(err)
	}
	var version struct{ Version, Commit, AgentImage string }
	if err := json.Unmarshal(output(t, program, "version", "-o", "json"), &version); err != nil {
		t.Fatal(err)
	}
	agentDigest := indexDigest(t, filepath.Join(dir, "kamino-agent_1.2.3-rc.1_image.tar"))

	t.Run("the program knows what it is", func(t *testing.T) {
		if version.Version != "v1.2.3-rc.1" || version.Commit != strings.Repeat("c0", 20) || version.AgentImage != "registry.example/k/kamino-agent@"+agentDigest {
			t.Errorf("%+v, and the agent's image is %s", version, agentDigest)
		}
	})
	t.Run("archives", func(t *testing.T) {
		for _, name := range []string{"kamino", "man/kamino.1", "completions/kamino.bash", "completions/_kamino", "completions/kamino.fish", "completions/kamino.ps1", "LICENSE", "NOTICE", "CHANGELOG.md", "licenses/k8s.io/client-go/LICENSE",
			"README.md", "docs/install.md", "docs/azure-role.json", "docs/aws-policy-canary.json", "docs/run.svg", "crds/kamino.dev_nodeprototypes.yaml"} {
			if len(kaminoFiles[name]) == 0 {
				t.Errorf("kamino's archive has no %s", name)
			}
		}
		for _, name := range []string{"kamino-agent", "man/kamino-agent.8", "licenses/go.etcd.io/bbolt/LICENSE"} {
			if len(agentFiles[name]) == 0 {
				t.Errorf("kamino-agent's archive has no %s", name)
			}
		}
		if kind := read(t, filepath.Join(dir, "kamino-crds_1.2.3-rc.1.yaml")); !bytes.Equal(kind, kaminoFiles["crds/kamino.dev_nodeprototypes.yaml"]) {
			t.Error("the kind beside the archives is another")
		}
		if _, ok := agentFiles["licenses/k8s.io/client-go/LICENSE"]; ok {
			t.Error("kamino-agent's archive has licences of what only kamino is linked with")
		}
		if page := string(kaminoFiles["man/kamino.1"]); !strings.HasPrefix(page, ".nh\n.TH") || !strings.Contains(page, "v1.2.3-rc.1") || !strings.Contains(page, "kamino auto-update") {
			t.Errorf("the manual page begins %.200q", page)
		}
	})
	t.Run("charts", func(t *testing.T) {
		base := unpack(t, filepath.Join(dir, "kamino-base-1.2.3-rc.1.tgz"))
		job := unpack(t, filepath.Join(dir, "vmss-prototype-1.2.3-rc.1.tgz"))
		controller := unpack(t, filepath.Join(dir, "kamino-1.2.3-rc.1.tgz"))
		kaminoDigest := indexDigest(t, filepath.Join(dir, "kamino_1.2.3-rc.1_image.tar"))
		for _, want := range []struct{ in, text string }{
			{string(base["values.yaml"]), "sealImages:\n  - " + version.AgentImage}, {string(base["Chart.yaml"]), "\nversion: \"1.2.3-rc.1\""},
			{string(job["values.yaml"]), "imageHash: \"" + strings.TrimPrefix(kaminoDigest, "sha256:")}, {string(job["values.yaml"]), "sealImage: \"" + version.AgentImage},
			{string(controller["Chart.yaml"]), "\nversion: \"1.2.3-rc.1\""}, {string(controller["values.yaml"]), "digest: \"" + strings.TrimPrefix(kaminoDigest, "sha256:")},
			{string(controller["values.yaml"]), "  sealImages:\n    - " + version.AgentImage}, {string(controller["values.yaml"]), "\nsealImage: \"" + version.AgentImage},
			{string(controller["charts/kamino-base/Chart.yaml"]), "\nversion: \"1.2.3-rc.1\""}, {string(controller["templates/kamino.dev_nodeprototypes.yaml"]), "kind: CustomResourceDefinition"},
			{string(controller["alerts.yaml"]), "alert: KaminoDonorAway"},
			{string(job["Chart.yaml"]), "appVersion: \"1.2.3-rc.1\""}, {string(job["templates/_pod.tpl"]), "restartPolicy: Never"},
		} {
			t.Run(want.in, func(t *testing.T) {
				if !strings.Contains(want.in, want.text) {
					t.Errorf("%q is not in\n%s", want.text, want.in)
				}
			})
		}
	})
	t.Run("packages", func(t *testing.T) {
		tool(t, "dpkg-deb")
		root := t.TempDir()
		output(t, "dpkg-deb", "-x", filepath.Join(dir, "kamino-agent_1.2.3~rc.1_amd64.deb"), root)
		if out := string(output(t, root+"/usr/bin/kamino-agent", "version")); !strings.Contains(out, "v1.2.3-rc.1") {
			t.Errorf("the agent of the deb says %q", out)
		}
		tool(t, "rpm")
		list := string(output(t, "rpm", "-qlp", "--nosignature", filepath.Join(dir, "kamino-agent-1.2.3~rc.1-1.x86_64.rpm")))
		if !strings.Contains(list, "/usr/bin/kamino-agent\n") || !strings.Contains(list, "/usr/share/man/man8/kamino-agent.8.gz\n") {
			t.Errorf("the rpm holds\n%s", list)
		}
	})
	t.Run("list of contents", func(t *testing.T) {
		checkSBOM(t, filepath.Join(dir, "kamino_1.2.3-rc.1_linux_amd64.cdx.json"), program)
	})
	t.Run("provenance", func(t *testing.T) { checkProvenance(t, dir, key) })
	t.Run("commands of the page", func(t *testing.T) { checkCommands(t, dir, key) })
	t.Run("made twice", func(t *testing.T) {
		again := release(t, key)
		for _, name := range listed(t, dir) {
			one, two := read(t, filepath.Join(dir, name)), read(t, filepath.Join(again, name))
			if !bytes.Equal(one, two) {
				t.Errorf("%s differs the second time", name)
			}
		}
	})
}

// checkSBOM: the list names each module of the program, with a licence.
func checkSBOM(t *testing.T, file, program string) {
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(read(t, file)), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	components := map[string]cdx.Component{}
	for _, c := range *bom.Components {
		components[c.Name] = c
	}
	for _, d := range info.Deps {
		if c := components[d.Path]; c.Version != d.Version || c.Licenses == nil || (*c.Licenses)[0].Expression == "" {
			t.Errorf("module %s %s is listed as %+v", d.Path, d.Version, c)
		}
	}
	if len(components) != len(info.Deps)+1 { // and the standard library
		t.Errorf("%d components of %d modules", len(components), len(info.Deps))
	}
	if sum := fmt.Sprintf("%x", sha256.Sum256(read(t, program))); (*bom.Metadata.Component.Hashes)[0].Value != sum {
		t.Errorf("the list is not of this program")
	}
}

type verifier struct{ key *ecdsa.PublicKey }

func (v verifier) Verify(_ context.Context, body, sig []byte) error {
	sum := sha256.Sum256(body)
	if !ecdsa.VerifyASN1(v.key, sum[:], sig) {
		return errors.New("wrong signature")
	}
	return nil
}
func (v verifier) KeyID() (string, error)   { return "", nil }
func (v verifier) Public() crypto.PublicKey { return v.key }

// checkProvenance: the envelope is signed by the key, in-toto's own library takes what is in it,
// and it tells each file.
func checkProvenance(t *testing.T, dir string, key *ecdsa.PrivateKey) {
	var e dsse.Envelope
	if err := json.Unmarshal(read(t, filepath.Join(dir, provenanceFile)), &e); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		key  *ecdsa.PrivateKey
		ok   bool
	}{{"its key", key, true}, {"another key", newKey(t), false}} {
		v, err := dsse.NewEnvelopeVerifier(verifier{&tt.key.PublicKey})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := v.Verify(t.Context(), &e); (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	payload, err := base64.StdEncoding.DecodeString(e.Payload)
	if err != nil {
		t.Fatal(err)
	}
	var s attestation.Statement
	if err := protojson.Unmarshal(payload, &s); err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(); err != nil {
		t.Error(err)
	}
	body, err := s.GetPredicate().MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	var p slsa.Provenance
	if err := protojson.Unmarshal(body, &p); err != nil {
		t.Fatal(err)
	}
	if err := p.Validate(); err != nil {
		t.Error(err)
	}
	told := map[string]string{}
	for _, subject := range s.GetSubject() {
		told[subject.GetName()] = subject.GetDigest()["sha256"]
	}
	for _, name := range listed(t, dir) {
		if !slices.Contains([]string{provenanceFile, sumsFile, signatureFile}, name) && told[name] != fmt.Sprintf("%x", sha256.Sum256(read(t, filepath.Join(dir, name)))) {
			t.Errorf("the provenance does not tell %s as it is", name)
		}
	}
}

// checkCommands runs what docs/release.md tells a user to type: it passes, and one byte changed in
// any file is found.
func checkCommands(t *testing.T, dir string, key *ecdsa.PrivateKey) {
	tool(t, "openssl")
	_, page, _ := strings.Cut(string(read(t, "../../docs/release.md")), "\n## Verify\n")
	var commands []string
	for line := range strings.Lines(page) {
		if command, ok := strings.CutPrefix(line, "    "); ok {
			commands = append(commands, strings.TrimSpace(command))
		} else if len(commands) > 0 {
			break
		}
	}
	if len(commands) != 2 {
		t.Fatalf("commands of the page: %q", commands)
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	// The key comes from elsewhere than the files.
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, "kamino-release.pub"), public, 0o644); err != nil {
		t.Fatal(err)
	}
	verify := func() error {
		cmd := exec.Command("bash", "-ec", strings.ReplaceAll(strings.Join(commands, " && "), "kamino-release.pub", filepath.Join(home, "kamino-release.pub")))
		cmd.Dir = dir
		return cmd.Run()
	}
	if err := verify(); err != nil {
		t.Fatalf("an untouched release is refused: %v", err)
	}
	for _, name := range listed(t, dir) {
		file := filepath.Join(dir, name)
		body := read(t, file)
		at := mathrand.IntN(len(body))
		changed := bytes.Clone(body)
		changed[at] ^= 1 << mathrand.IntN(8)
		if err := os.WriteFile(file, changed, 0o644); err != nil {
			t.Fatal(err)
		}
		if verify() == nil {
			t.Errorf("byte %d of %s was changed, and nothing found it", at, name)
		}
		if err := os.WriteFile(file, body, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBadReleases: what cannot be is refused before anything is built.
func TestBadReleases(t *testing.T) {
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "x"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	good := Release{Source: "/nonexistent", Out: t.TempDir(), Version: "1.0.0", Registry: "r", Targets: Targets}
	for _, tt := range []struct {
		name   string
		change func(*Release)
		want   string
	}{
		{"version with v", func(r *Release) { r.Version = "v1.0.0" }, `invalid version "v1.0.0"`},
		{"version of two numbers", func(r *Release) { r.Version = "1.0" }, `invalid version "1.0"`},
		{"version with build metadata", func(r *Release) { r.Version = "1.0.0+1" }, "invalid version"},
		{"no registry", func(r *Release) { r.Registry = "" }, "no registry"},
		{"no targets", func(r *Release) { r.Targets = nil }, "no targets"},
		{"full directory", func(r *Release) { r.Out = full }, "is not empty"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := good
			tt.change(&r)
			if err := Make(t.Context(), r); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	if _, err := ParseTargets("linux/amd64,plan9/arm"); err == nil || !strings.Contains(err.Error(), `invalid target "plan9/arm"`) {
		t.Error(err)
	}
	if _, err := ParseTargets("darwin/arm64"); err == nil || !strings.Contains(err.Error(), "no target of linux") {
		t.Error(err)
	}
}

func unpack(t *testing.T, file string) map[string][]byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(read(t, file)))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]byte{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		_, name, _ := strings.Cut(h.Name, "/")
		if found[name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

// indexDigest is the digest by which a registry will know the image.
func indexDigest(t *testing.T, file string) string {
	t.Helper()
	for r := tar.NewReader(bytes.NewReader(read(t, file))); ; {
		h, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if h.Name == "index.json" {
			body, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprintf("sha256:%x", sha256.Sum256(body))
		}
	}
}

func listed(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	body, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func output(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		t.Fatalf("%s %s: %v", name, strings.Join(args, " "), err)
	}
	return out
}

// tool skips a test that needs a program which is not installed.
func tool(t *testing.T, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("%s is not installed: apt-get install %s", name, strings.TrimSuffix(name, "-deb"))
	}
}
