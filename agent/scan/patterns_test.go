package scan

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"io"
	"slices"
	"strings"
	"testing"

	"kamino.dev/kamino/agent/disk/disktest"
)

// planted are texts with the kind that must be found in each. Tokens are put together here, so that
// no file of this repository holds one.
var planted = map[string][]string{
	"azure-secret": {"value ab" + "c8Q~AbCdEfGhIjKlMnOpQrStUvWxYz012345678"},
	"azure-key":    {strings.Repeat("aB3d", 13) + "JQQJ" + "99AKACAAAAAAAAAAAAASAZDO1a2b"},
	"password":     {"ExecStart=/opt/app/run -p S0mmerRegen1987\n", "mysqldump -uroot -pTr0ub4dor3x app", "mysql -h db --port 3306 -p'Tr0ub4dor3x'", "http://svc:Pa55w0rd!@proxy.corp:8080", "postgres://backup:correcthorse@db/app", "0 1 * * * root curl -u svc:Tr0ub4dor3x https://x", "wget --user=svc:Tr0ub4dor3x x"},
	"secret": {"DB_PASSWORD=correcthorsebatterystaple\n", "password: \"summer rain in june 1987\"\n", `{"passphrase": "four small green apples"}`, "Cookie: session=AbCdEfGhIjKlMnOpQrStUvWxYz0123456789\n", "db_password: >-\n  Tr0ub4dor3x\n", "password: |\n    Tr0ub4dor3x\n", "{\"password\":\n  \"Tr0ub4dor3x\"}", "<entry><key>db.password</key><string>Tr0ub4dor3x</string></entry>",
		"password = Gr\u00fcn3Wiese99", "db_pw=Tr0ub4dor3x", "Kennwort = Tr0ub4dor3x", "AZURE_DEVOPS_EXT_PAT=" + strings.Repeat("q8zr", 13), "password = S0nne4Mond", "run --password S0nneUndMond4\n",
		"kind: Secret\nmetadata: {name: x}\ndata:\n  db: UzBtbWVyUmVnZW4xOTg3IQ==\n", "password=Pa55w0rd1234\n", "  password: Pa55w0rd1234\n", `{"password":"Pa55w0rd1234"}`, `{\"password\":\"Pa55w0rd1234\"}`, `<password>Pa55w0rd1234</password>`, `<user password="Pa55w0rd1234"/>`,
		`<add key="DbPassword" value="Pa55w0rd1234"/>`, "export APP_SECRET_KEY='q8Zr2LmT5vXw9BnC'", "node.session.auth.password = Pa55w0rd1234", "ldap_default_authtok = hunter2hunter2",
		"Server=x;User Id=sa;Password=Tr0ub4dor3x;", "api_key: 9f2c9f2c9f2c9f2c7a9f2c9f2c9f2c9f", "bindpw Tr0ub4dor3x\n", "machine x login y password C1abcdefghijk", "secret_key => 'q8Zr2LmT5vXw9BnC'",
		"\tkey = AQD1k8NlAAAAABAAq8Zc0q0Qy2xkJ7hN0a1c2w==\n", "account-key: XLXDnWFaq15lFdfNHaFpnM55sjBnaEkNVdrhMIPtCYyaA2oEDKz5Lmje76H195q", "SetCredential=db:Tr0ub4dor3x", `encrypt = "pUqJrVyVRj5jsiYEkM/tFQYfWyJIv4s3XkvDwy7Cu5s="`},
	"machine-identity": {`{"machineGuid":"6f1d1c0e-2f3a-4a7b-9a55-0c2b7e8d9f10"}`, "AGENT_GUID=6f1d1c0e-2f3a-4a7b-9a55-0c2b7e8d9f10", "guid = 6F1D1C0E-2F3A-4A7B-9A55-0C2B7E8D9F10", "node_id: 9f2c9f2c7a9f2c9f"},
	"password-hash": {"- passwd: $6$abcdefgh$" + strings.Repeat("aB", 43), "rootpw --iscrypted $1$abcdefgh$" + strings.Repeat("c", 22), "admin: $2b$12$" + strings.Repeat("d", 53), "x $y$j9T$salt$" + strings.Repeat("e", 43),
		`AUTH Digest username="a", realm="b", response="6f1d1c0e2f3a4a7b9a550c2b7e8d9f10"`, "svc:1001:aad3b435b51404eeaad3b435b51404ee:" + "8846f7eaee8fb117ad06bdd830b7586c:::",
		"admin:$apr1$abcdefgh$" + strings.Repeat("f", 22), "$5$rounds=5000$salt$" + strings.Repeat("g", 43)},
	"token-bearer":  {`authorization = "Basic dXNlcjpQYTU1dzByZDEyMzQ="`, `Authorization = ["Bearer abcdefghijklmnopqrstuvwxyz"]`, "Authorization: Bearer abcdefghijklmnop"},
	"registry-auth": {`auth = "dXNlcjpQYTU1dzByZDEyMzQ="`},
	"forge-token": {"github" + "_pat_11ABCDEFG0" + strings.Repeat("aB3", 20), "gl" + "rt-t1_AbCdEfGhIjKlMnOpQrSt", "dop" + "_v1_" + strings.Repeat("9f2c", 16), "xo" + "xb-1234567890-abcdefghij",
		"s" + "k-proj-Ab3dEf6hIj9kLmN0pQrStUvWxYz12345", "s" + "k-ant-api03-Ab3dEf6hIj9kLmN0pQrStUvWxYz", "S" + "G.AbCdEfGhIjKlMnOpQrStUv." + strings.Repeat("aB3d", 11)[:43],
		"h" + "f_AbCdEfGhIjKlMnOpQrStUvWxYz01234567", "bot 123456789" + ":AAF1abcdefghijklmnopqrstuvwxyz01234",
		"https://corp.webhook.office.com/webhookb2/6f1d1c0e-2f3a-4a7b-9a55-0c2b7e8d9f10@6f1d1c0e-2f3a-4a7b-9a55-0c2b7e8d9f11/Incoming" + "Webhook/" + strings.Repeat("9f2c", 8),
		"https://discord.com/api/webhooks/123456789012345678" + "/" + strings.Repeat("aB3d", 17),
		"urls = [\"https://hooks.example.net/T0/6f1d1c0e2f3a4a7b9a550c2b7e8d9f10\"]", "https://hooks.slack.com/services/T0000000" + "1/B00000002/AbCdEfGhIjKlMnOpQrStUvWx"},
	"vault-token": {"hv" + "s.CAESIJlU02LQZq42aaaaaaaaaaaaaaaaaaaaaa"},
	"aws-key":     {"AK" + "IAIOSFODNN7ABCDEFG", "ASIA" + "IOSFODNN7ABCDEFG"},
	"private-key": {"AGE-SECRET" + "-KEY-1" + strings.Repeat("QPZRY9X8", 7), "-----BEGIN OpenVPN Static key V1-----\n6acef03f62675b4b1bbd03e53b187727\n", `{"kty":"EC","d":"AXR2s1Vx3mQ7y2xkJ7hN0a1c2w"}`, "(11:private-key(3:rsa"},
	"vpn-key":     {`{"PrivateKey":"` + strings.Repeat("A", 43) + `="}`},
}

func secrets() (all []string) {
	for _, texts := range planted {
		all = append(all, texts...)
	}
	return all
}

// harmless is what documentation, shipped configuration and programs write.
var harmless = []string{
	"password: enter the password for this account", `"password": "enter 1 for a new user please"`, "password: \"Summer rain in June 1987\"", `"password": "must be 8 characters"`, "password = undefined", "password_reset = \"one two 3, four\"",
	"password: notarealpasswordatall", "secret: kubernetesdashboardcerts", "mkdir -p Release2024Final3", "ExecStart=/usr/bin/x -p 8080", "docker run -p 80:8080", "ssh -p Port22", "nmap -p T1:U53x9", "Set-Cookie: lang=en", "Cookie: session=$COOKIE",
	"https://github.com/x/y/raw/6f1d1c0e2f3a4a7b9a550c2b7e8d9f10/hook.sh", "https://hooks.example.net/T0/latest", "webhook-6f1d1c0e2f3a4a7b9a550c2b7e8d9f10", "response=\"6f1d1c0e2f3a4a7b9a550c2b7e8d9f10\"",
	"password: |\n  Your password was changed in 2024\n", "password: >\n  echo\n", "<key>db.password</key><string>changeme</string>", "kind: Secret\ndata:\n  db: {{ .Values.x }}\n", "kind: SecretStore\ndata:\n  a: bcdefgh\n",
	"mysql -u root -p app1", "mysql --protocol tcp -P 3306", "hf_register_new_model_architecture_x9", "signature_algorithm_secret = sha256WithRSAEncryption", "password_encryption = scram-sha-256", "\"password\":\n  {\"a1b2c3\": 1}",
	"12:AAF1abcdefghijklmnopqrstuvwxyz01234", "https://discord.com/api/webhooks/1/x",
	"password=<PASSWORD>", "password = changeme", "password: ${DB_PASSWORD}", "password=$(cat /run/x1)", "# password = Pa55w0rd1234", "; password=Pa55w0rd1234", "  // secret: Pa55w0rd1234", "password = password",
	"http://user:password@host/", "https://user:pass@example.com/", "http://$user:$pass@x", "http://[user:pass@]host", "kpasswd\t\t464/tcp", "password\t[success=1 default=ignore]\tpam_unix.so obscure yescrypt",
	"passwd: files systemd sss", "password sufficient pam_unix.so sha512 shadow", "tokenizer = v2", "token = tok.next2()", "secretName: my-secret-2", "secret: {secretName: x1}", "password = sha512", "private_key = /etc/ssl/private/x1.key",
	"token_file: /run/token1", "password_hash = argon2", "key = value1", "api_key = YOUR_API_KEY_1", "bypass = on1", "Password: Enter 1 password", "AKIAIOSFODNN7EXAMPLE", "password=xxxxxxxx1", "guid = 00000000-0000-0000-0000-000000000000",
	"UUID=6f1d1c0e-2f3a-4a7b-9a55-0c2b7e8d9f10 / ext4", "subscriptionId: 6f1d1c0e-2f3a-4a7b-9a55-0c2b7e8d9f10", "$1$2 and $6$x", "echo $1$2$3", "authorization = \"Bearer ${TOKEN}\"", "auth = \"basic\"", "curl -u $USER:$PASS", "ssh://git@github.com/x",
	"password == 'Pa55w0rd1234'", "the password file2 is", `"output_token": "DistributionList.NextMarker"`, "maxtoken=4096", "secret = config.secret2", "hvs.short", "glrt-short", "-----BEGIN OpenVPN Static key V1-----",
}

func found(m *matcher, text string) (kinds []string) {
	data := []byte(text + "   ")
	all := hits{digest: m.digest}
	m.search(data, 0, len(data), 0, all.add)
	for _, h := range relevant(all.list) {
		kinds = append(kinds, h.kind)
	}
	return kinds
}

func TestPatterns(t *testing.T) {
	m, _ := newMatcher(Facts{})
	for kind, texts := range planted {
		for _, text := range texts {
			if got := found(m, text); len(got) == 0 || strings.Count(strings.Join(got, " ")+" ", kind+" ") == 0 {
				t.Errorf("%q: found %q, want %s", text, got, kind)
			}
		}
	}
	for _, text := range harmless {
		if got := found(m, text); len(got) > 0 {
			t.Errorf("%q: found %q, and it is none", text, got)
		}
	}
}

// TestDecoded: what is compressed or in UTF-16 is read as the text that it is.
func TestDecoded(t *testing.T) {
	const text = "login ok\npassword = Pa55w0rd1234\n"
	for name, data := range encodings(t, text) {
		e := encoded(data)
		if e == nil {
			t.Errorf("%s: not recognised", name)
			continue
		}
		plain, release, err := e.open(bufio.NewReader(bytes.NewReader(data)))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := io.ReadAll(plain)
		release()
		if err != nil || !strings.HasSuffix(string(got), text) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		d := disktest.New(t, map[string]string{"srv/file": string(data)})
		r, err := Files(t.Context(), d, Options{})
		decoded := slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Kind == "secret" && strings.Contains(f.Detail, e.name) })
		if err != nil || !decoded {
			t.Errorf("%s: %v, %v", name, r.Findings, err)
		}
	}
	for _, data := range []string{"", "\x1f\x8b\x08 torn", "\xfd7zXZ\x00 torn", "\x28\xb5\x2f\xfd torn"} {
		d := disktest.New(t, map[string]string{"srv/file": data})
		if r, err := Files(t.Context(), d, Options{}); err != nil || len(r.Findings) > 0 {
			t.Errorf("%q: %v, %v", data, r.Findings, err)
		}
	}
}

// TestShapes: real keys in the binary forms of the standard library's encoders, and what is no key.
func TestShapes(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	must := func(data []byte, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	random := make([]byte, 512)
	if _, err := rand.Read(random); err != nil {
		t.Fatal(err)
	}
	random[0], random[1] = 0xfb, 0x80 // no format's sign, no UTF-8
	public := must(x509.MarshalPKIXPublicKey(&rsaKey.PublicKey))
	trusted := "\xfe\xed\xfe\xed\x00\x00\x00\x02\x00\x00\x00\x01\x00\x00\x00\x02\x00\x02caAAAAAAAA\x00\x05X.509\x00\x00\x00\x03abc" + strings.Repeat("d", 20)
	for _, c := range []struct{ name, content, kind string }{
		{"srv/pkcs8", must(x509.MarshalPKCS8PrivateKey(rsaKey)), "private-key"}, {"srv/pkcs8-ec", must(x509.MarshalPKCS8PrivateKey(ecKey)), "private-key"},
		{"srv/pkcs8-ed", must(x509.MarshalPKCS8PrivateKey(edKey)), "private-key"}, {"srv/pkcs1", string(x509.MarshalPKCS1PrivateKey(rsaKey)), "private-key"},
		{"srv/sec1", must(x509.MarshalECPrivateKey(ecKey)), "private-key"}, {"srv/store.jks2", "\xfe\xed\xfe\xed\x00\x00\x00\x02\x00\x00\x00\x01\x00\x00\x00\x01more", "key-store"},
		{"srv/random", string(random), "secret"}, {"etc/app/data.key", string(random[:16]), "private-key"}, {"srv/id", "6f1d1c0e-2f3a-4a7b-9a55-0c2b7e8d9f10\n", "machine-identity"},
		{"srv/key", strings.Repeat("q8Zr2LmT5v", 4) + "abc=\n", "secret"}, {"etc/chrony/chrony.keys", "# keys\n1 SHA1 HEX:9f2c9f2c\n", "user-credential"},
		{"srv/public", public, ""}, {"srv/trusted", trusted, ""}, {"etc/chrony/chrony.keys", "# no keys\n\n", ""}, {"srv/app.sha256", strings.Repeat("9f2c", 16) + "\n", ""}, {"srv/text", strings.Repeat("abc ", 20), ""},
		{"etc/apt/keyrings/x.key", "\x99\x01\x0d" + string(random[:64]), ""}, {"srv/zero", string(make([]byte, 512)), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := disktest.New(t, map[string]string{c.name: c.content})
			r, err := Files(t.Context(), d, Options{})
			got := ""
			if len(r.Findings) > 0 {
				got = r.Findings[0].Kind
			}
			if err != nil || got != c.kind {
				t.Errorf("%s: %v, %v, want %q", c.name, r.Findings, err, c.kind)
			}
		})
	}
}

// TestDonorsForms: the donor's name and addresses in whatever form, also in names of files.
func TestDonorsForms(t *testing.T) {
	facts := Facts{Host: "donor-host-1", Addresses: []string{"10.0.0.7", "fd00::a:17"}, MACs: []string{"00:0d:3a:11:22:33"}, MachineID: "0123456789abcdef0123456789abcdef"}
	for _, text := range []string{"fd00:0:0:0:0:0:a:17", "fd00:0000:0000:0000:0000:0000:000a:0017", "FD00::A:17", "ip-10-0-0-7.internal", "00-0D-3A-11-22-33", "fe80:0:0:0:20d:3aff:fe11:2233"} {
		m, _ := newMatcher(facts)
		if len(found(m, text)) == 0 {
			t.Errorf("%s: not found", text)
		}
	}
	d := disktest.New(t, map[string]string{"srv/10.0.0.7.json": "{}", "srv/110.0.0.7.json": "{}", "var/lib/x/donor-host-1/y": "z", "boot/0123456789abcdef0123456789abcdef-6.8.conf": "x"})
	r, err := Files(t.Context(), d, Options{Facts: facts})
	var paths []string
	for _, f := range r.Findings {
		paths = append(paths, f.Path)
	}
	if want := "boot/0123456789abcdef0123456789abcdef-6.8.conf srv/10.0.0.7.json var/lib/x/donor-host-1"; err != nil || strings.Join(paths, " ") != want {
		t.Errorf("%q, %v, want %s", paths, err, want)
	}
}

// TestDigests: two scans do not tell by their digests that they found the same, and one does.
func TestDigests(t *testing.T) {
	d := disktest.New(t, map[string]string{"srv/a": token, "srv/b": token})
	var details []string
	for range 2 {
		r, err := Files(t.Context(), d, Options{})
		if err != nil || len(r.Findings) != 2 || r.Findings[0].Detail != r.Findings[1].Detail {
			t.Fatalf("%v, %v", r.Findings, err)
		}
		details = append(details, r.Findings[0].Detail)
	}
	if details[0] == details[1] {
		t.Errorf("both scans say %s: a short password could be guessed from it", details[0])
	}
}
