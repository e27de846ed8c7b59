package scan

import (
	"encoding/base32"
	"encoding/base64"
	"math/rand/v2"
	"testing"

	"kamino.dev/kamino/agent/disk/disktest"
)

// tokenForms are the ways in which programs write random tokens.
var tokenForms = map[string]func(r *rand.Rand, n int) string{
	"letters and digits":          func(r *rand.Rand, n int) string { return pick(r, letters[:62], n) },
	"lower case and digits":       func(r *rand.Rand, n int) string { return pick(r, lowerAndDigits, n) },
	"capitals and digits":         func(r *rand.Rand, n int) string { return pick(r, letters[:36], n) },
	"letters of both cases":       func(r *rand.Rand, n int) string { return pick(r, letters[10:62], n) },
	"base32":                      func(r *rand.Rand, n int) string { return base32.StdEncoding.EncodeToString(random(r, n*5/8+1)) },
	"base64, URL":                 func(r *rand.Rand, n int) string { return base64.RawURLEncoding.EncodeToString(random(r, n*3/4+1)) },
	"base64, URL, padded":         func(r *rand.Rand, n int) string { return base64.URLEncoding.EncodeToString(random(r, n*3/4+1)) },
	"base64 without its padding":  func(r *rand.Rand, n int) string { return base64.RawStdEncoding.EncodeToString(random(r, n*3/4+1)) },
	"base64, padded where it can": func(r *rand.Rand, n int) string { return base64.StdEncoding.EncodeToString(random(r, n*3/4+1)) },
}

func pick(r *rand.Rand, from string, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = from[r.IntN(len(from))]
	}
	return string(b)
}

func random(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.IntN(256))
	}
	return b
}

// TestRandomBytes: of random keys hardly one is taken for structured data, whatever its length. Known
// formats begin as one of a hundred does.
func TestRandomBytes(t *testing.T) {
	const each, most = 4000, 80
	r := rand.New(rand.NewPCG(3, 3))
	for _, n := range []int{32, 48, 64, 128, 512} {
		missed := 0
		for range each {
			if !randomBytes(random(r, n)) {
				missed++
			}
		}
		if missed > most {
			t.Errorf("%d of %d keys of %d bytes are missed", missed, each, n)
		}
	}
}

// TestBareTokens: of random tokens hardly one is taken for a name, and of 32 characters and more
// none.
func TestBareTokens(t *testing.T) {
	const each = 500
	for form, write := range tokenForms {
		r := rand.New(rand.NewPCG(5, 6))
		for _, n := range []int{20, 24, 32, 40, 43, 64} {
			missed := 0
			for range each {
				if token := write(r, n); !bareToken([]byte(token)) && !hexOnly.MatchString(token) {
					missed++
				}
			}
			t.Logf("%s of %d: %d of %d missed", form, n, missed, each)
			if most := map[bool]int{true: each / 50, false: each / 200}[n < 32]; missed > most {
				t.Errorf("%s of %d: %d of %d missed", form, n, missed, each)
			}
		}
	}
}

// names that people and programs give, of 20 characters and more.
var longNames = []string{
	"k8s-pool1-28346-vmss000003", "aks-nodepool1-12345678-vmss00000a", "aks-np1-33012467-vmss00001z", "gke-cluster-default-pool-1a2b3c4d-x7k2", "ip-10-0-112-34-eu-central-1-compute-internal",
	"AKSUbuntu-2204gen2containerd-202401", "AKSUbuntu2204gen2containerd", "Microsoft_AzureLinux_3_0", "America/Argentina/Buenos_Aires", "America/North_Dakota/New_Salem", "usr/lib/systemd/system-generators", "/var/lib/containerd/overlayfs",
	"multi-user-target-wants", "2024-01-02T03-04-05Z", "20240102030405Z20240102", "systemd-networkd-wait-online", "kubernetes-internal-control-plane", "DonaudampfschifffahrtsgesellschaftskapitaenCap", "ExecStartPreConditionIsSatisfiedAlways",
	"amazon-eks-node-al2023-x86_64-standard-1", "linux-image-6-8-0-1021-azure-amd64", "donor-host-1-eastus2-cloudapp-azure-com", "00000000000000000000000a", "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", "noneofthisisarandomstring",
	"cloud-init-local-stage-finished", "node-role-kubernetes-io-control-plane", "registered_with_scale_set", "kube-system-coredns-configuration", "PlaceholderReplaceMe0123456789", "prometheus-node-exporter-textfile", "this_is_the_name_of_a_file",
}

func TestLongNames(t *testing.T) {
	for _, name := range longNames {
		if bareToken([]byte(name)) {
			t.Errorf("%s: taken for a token, %.2f", name, randomness(name))
		}
	}
}

// TestBareTokenFiles: a file that is nothing but a token is found whatever it is called, unless a
// package brought it.
func TestBareTokenFiles(t *testing.T) {
	const token = "MHtJ3xQz8vLw2RkT9bNc5PfY7dGs4KaWm1EoUiXq"
	for name, want := range map[string]string{"var/snap/canonical-livepatch/current/id": "secret", "etc/app/x": "secret", "opt/agent/token": "secret", "etc/bootstrap": "token-bootstrap", "etc/package/seed": "", "usr/share/x": ""} {
		text := token + "\n"
		if want == "token-bootstrap" {
			text = "abcdef.0123456789abcdef\n"
		}
		r, err := Files(t.Context(), disktest.New(t, map[string]string{name: text}), Options{Vouched: func(name string) bool { return name == "etc/package/seed" }})
		got := ""
		if len(r.Findings) > 0 {
			got = r.Findings[0].Kind
		}
		if err != nil || got != want {
			t.Errorf("/%s: %v, %v, want %q", name, r.Findings, err, want)
		}
	}
}

// FuzzBareToken: any bytes are judged, the same with a line's end behind them.
func FuzzBareToken(f *testing.F) {
	for _, name := range longNames {
		f.Add([]byte(name))
	}
	r := rand.New(rand.NewPCG(7, 8))
	for _, write := range tokenForms {
		f.Add([]byte(write(r, 40)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if n := randomness(string(data)); n < -1.2 || n > 2 {
			t.Errorf("%q: %v", data, n)
		}
		if bareToken(data) && (len(data) < 20 || len(data) > 706) {
			t.Errorf("%q is a token", data)
		}
	})
}
