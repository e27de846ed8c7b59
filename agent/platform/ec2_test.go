package platform

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino/agent/disk/disktest"
)

func TestOnEC2(t *testing.T) {
	const dmi = "sys/class/dmi/id/"
	for name, tt := range map[string]struct {
		files    map[string]string
		ec2      bool
		instance string
	}{
		"Nitro":                 {map[string]string{dmi + "sys_vendor": "Amazon EC2\n", dmi + "board_asset_tag": "i-0123456789abcdef0\n"}, true, "i-0123456789abcdef0"},
		"Nitro, the tag alone":  {map[string]string{dmi + "board_asset_tag": "i-01234567\n"}, true, "i-01234567"},
		"BIOS vendor":           {map[string]string{dmi + "bios_vendor": "Amazon EC2\n"}, true, ""},
		"Xen":                   {map[string]string{dmi + "sys_vendor": "Xen\n", dmi + "product_uuid": "EC2E1916-9099-7CAF-FD21-012345ABCDEF\n"}, true, ""},
		"Xen, little-endian":    {map[string]string{dmi + "sys_vendor": "Xen\n", dmi + "product_uuid": "45E12AEC-DCD1-B213-94ED-012345ABCDEF\n"}, true, ""},
		"Xen of somebody else":  {map[string]string{dmi + "sys_vendor": "Xen\n", dmi + "product_uuid": "11112222-9099-7caf-fd21-012345abcdef\n"}, false, ""},
		"Azure, UUID like EC2":  {map[string]string{dmi + "sys_vendor": "Microsoft Corporation\n", dmi + "product_uuid": "ec2e1916-9099-7caf-fd21-012345abcdef\n"}, false, ""},
		"a tag that is no name": {map[string]string{dmi + "board_asset_tag": "i-am-a-board\n"}, false, ""},
		"nothing":               {nil, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := disktest.New(t, tt.files)
			if OnEC2(d) != tt.ec2 || InstanceID(d) != tt.instance {
				t.Errorf("EC2 %v, instance %q", OnEC2(d), InstanceID(d))
			}
			if _, is := At(d, "").(*EC2); is != tt.ec2 {
				t.Errorf("service %T", At(d, ""))
			}
		})
	}
}

// ec2Service answers with codes first, then as EC2 does.
type ec2Service struct {
	codes  []int // of requests with a token
	tokens int
	user   string
}

func (s *ec2Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/latest/api/token" {
		if r.Method != http.MethodPut || r.Header.Get("X-Aws-Ec2-Metadata-Token-Ttl-Seconds") != "21600" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		s.tokens++
		_, _ = w.Write([]byte("token\n")) // the client reads it or not
		return
	}
	switch {
	case r.Method != http.MethodGet || r.Header.Get("X-Aws-Ec2-Metadata-Token") != "token":
		w.WriteHeader(http.StatusUnauthorized)
	case len(s.codes) > 0:
		w.WriteHeader(s.codes[0])
		s.codes = s.codes[1:]
	case r.URL.Path == "/latest/meta-data/instance-id":
		_, _ = w.Write([]byte("i-0123456789abcdef0"))
	case r.URL.Path == "/latest/user-data" && s.user != "":
		_, _ = w.Write([]byte(s.user))
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func serveEC2(t *testing.T, s http.Handler) *EC2 {
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return &EC2{Endpoint: server.URL, Client: Direct(), Wait: func(ctx context.Context, _ time.Duration) error { return ctx.Err() }}
}

// TestEC2Session: one token for all requests, another when it has ended, and no user data is none.
func TestEC2Session(t *testing.T) {
	s := &ec2Service{codes: []int{503, 429}}
	c := serveEC2(t, s)
	m, err := c.Instance(t.Context())
	if err != nil || m.InstanceID != "i-0123456789abcdef0" || m.Tag(TagCanary) != "" || s.tokens != 1 {
		t.Fatalf("%+v, %v after %d tokens", m, err, s.tokens)
	}
	if data, err := c.UserData(t.Context()); data != nil || err != nil {
		t.Errorf("%q, %v", data, err)
	}
	s.codes, s.user = []int{401}, "apiVersion: kamino.dev/v1alpha1\nkind: NodeConfig\n"
	if data, err := c.UserData(t.Context()); string(data) != s.user || err != nil || s.tokens != 2 {
		t.Errorf("%q, %v after %d tokens", data, err, s.tokens)
	}
}

// TestEC2HopLimit: the request for a token arrives and its answer does not, as in a pod's network.
func TestEC2HopLimit(t *testing.T) {
	stop := make(chan struct{})
	defer close(stop)
	c := serveEC2(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-stop:
		case <-r.Context().Done():
		}
	}))
	c.Client.Timeout = 50 * time.Millisecond
	c.Wait = func(context.Context, time.Duration) error { return context.DeadlineExceeded }
	if _, err := c.Instance(t.Context()); err == nil || !strings.Contains(err.Error(), "hostNetwork: true") || !strings.Contains(err.Error(), "--http-put-response-hop-limit 2") {
		t.Error(err)
	}
	c.Endpoint = "http://127.0.0.1:1" // nobody is there: nothing is known of hops
	if _, err := c.Instance(t.Context()); err == nil || strings.Contains(err.Error(), "hop") {
		t.Error(err)
	}
}

func multipartOf(parts ...string) string {
	text := "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"//\"\n\n"
	for _, p := range parts {
		text += "--//\n" + p + "\n"
	}
	return text + "--//--\n"
}

func TestReadUserData(t *testing.T) {
	const doc = "apiVersion: kamino.dev/v1alpha1\nkind: NodeConfig\ngeneration: 1"
	const theirs = "Content-Type: application/node.eks.aws\n\napiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\n"
	nonce := strings.Repeat("ab", 32)
	order := "Content-Type: application/node.eks.aws\n\n# kamino-canary-nonce: " + nonce + "\napiVersion: node.eks.aws/v1alpha1\n"
	part := "Content-Type: " + NodeConfigType + "\n\n" + doc
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write([]byte(multipartOf(theirs, part)))
	_ = w.Close() // a buffer takes everything
	for name, tt := range map[string]struct{ text, config, nonce, err string }{
		"none":                         {"", "", "", ""},
		"a script":                     {"#!/bin/bash\n# apiVersion: kamino.dev/v1alpha1\n", "", "", ""},
		"cloud-config":                 {"#cloud-config\nusers: []\n", "", "", ""},
		"ours alone":                   {doc, doc, "", ""},
		"ours with a comment":          {"# pool1\n" + doc, "# pool1\n" + doc, "", ""},
		"nodeadm's alone":              {"apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\n", "", "", ""},
		"a part":                       {multipartOf("Content-Type: text/x-shellscript\n\n#!/bin/sh\n", part), doc, "", ""},
		"beside nodeadm's":             {multipartOf(theirs, part), doc, "", ""},
		"a part in base64":             {multipartOf("Content-Type: " + NodeConfigType + "\nContent-Transfer-Encoding: base64\n\n" + base64.StdEncoding.EncodeToString([]byte(doc))), doc, "", ""},
		"gzip":                         {packed.String(), doc, "", ""},
		"base64 of gzip":               {base64.StdEncoding.EncodeToString(packed.Bytes()), doc, "", ""},
		"a canary":                     {multipartOf(theirs, order), "", nonce, ""},
		"a canary by ours":             {multipartOf(part, "Content-Type: application/canary.kamino.dev\n\n# kamino-canary-nonce: "+nonce), doc, nonce, ""},
		"a nonce in a script":          {multipartOf("Content-Type: text/x-shellscript\n\n#!/bin/sh\n# kamino-canary-nonce: " + nonce + "\n"), "", "", ""},
		"two of ours":                  {multipartOf(part, part), "", "", "two parts"},
		"no last boundary":             {strings.TrimSuffix(multipartOf(part), "--//--\n"), doc, "", ""},
		"no last boundary, theirs":     {strings.TrimSuffix(multipartOf(part, theirs), "--//--\n"), doc, "", ""},
		"no blank line after a header": {multipartOf("Content-Type: text/x-shellscript; charset=\"us-ascii\"\n#!/bin/bash\nset -ex\n", part), doc, "", ""},
		"no blank line after ours":     {multipartOf("Content-Type: " + NodeConfigType + "\n" + doc), doc, "", ""},
		"no blank line after the headers": {"MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"==B==\"\n--==B==\nContent-Type: text/x-shellscript\n#!/bin/sh\n\n--==B==\n" +
			part + "\n--==B==--\n", doc, "", ""},
		"blank lines before it":             {"\n \r\n\n" + multipartOf(part), doc, "", ""},
		"a byte order mark before it":       {"\ufeff" + multipartOf(part), doc, "", ""},
		"a line of mbox before it":          {"From nobody Sat Nov 21 10:00:00 2026\n" + multipartOf(part), doc, "", ""},
		"line ends of Windows":              {strings.ReplaceAll(multipartOf(theirs, part), "\n", "\r\n"), strings.ReplaceAll(doc, "\n", "\r\n"), "", ""},
		"a boundary without quotes":         {strings.Replace(multipartOf(part), `"//"`, "//", 1), doc, "", ""},
		"a folded header":                   {strings.Replace(multipartOf(part), "; boundary", ";\n boundary", 1), doc, "", ""},
		"a multipart in a multipart":        {multipartOf("Content-Type: text/x-shellscript\n\n#!/bin/sh\n", "Content-Type: multipart/mixed; boundary=in\n\n--in\n"+part+"\n--in--\n"), doc, "", ""},
		"one inside without its end":        {multipartOf("Content-Type: multipart/mixed; boundary=in\n\n--in\n"+part, theirs), doc, "", ""},
		"a last boundary behind a boundary": {"MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=B\n\n--B\n--B--\n" + part, doc, "", ""},
		"a last boundary alone":             {"MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=B\n\n" + part + "\n--B--\n", "", "", "MIME multipart/mixed"},
		"a message in a multipart":          {multipartOf("Content-Type: message/rfc822\n\n" + part), doc, "", ""},
		"one part without multipart":        {"MIME-Version: 1.0\n" + part, doc, "", ""},
		"a part without a type":             {multipartOf("\n" + doc), doc, "", ""},
		"a part of text/plain":              {multipartOf("Content-Type: text/plain; charset=utf-8\n\n" + doc), doc, "", ""},
		"a part of another type":            {multipartOf("Content-Type: text/x-ours\n\n" + doc), "", "", ""},
		"quoted-printable":                  {multipartOf("Content-Type: " + NodeConfigType + "\nContent-Transfer-Encoding: quoted-printable\n\n" + strings.ReplaceAll(doc, ":", "=3A")), doc, "", ""},
		"damaged base64 of a script":        {multipartOf("Content-Type: text/x-shellscript\nContent-Transfer-Encoding: base64\n\n!!!", part), doc, "", ""},
		"damaged base64 of ours":            {multipartOf("Content-Type: " + NodeConfigType + "\nContent-Transfer-Encoding: base64\n\n!!!"), "", "", "MIME part 1, of type application/node.kamino.dev"},
		"no such boundary":                  {strings.Replace(multipartOf(part), `"//"`, `"B"`, 1), "", "", "MIME multipart/mixed: it has no line with the boundary"},
		"no such boundary, theirs":          {strings.Replace(multipartOf(theirs), `"//"`, `"B"`, 1), "", "", ""},
		"no boundary":                       {strings.Replace(multipartOf(part), "; boundary=\"//\"", "", 1), "", "", "MIME"},
		"JSON":                              {`{"kind":"NodeConfig","generation":1,"apiVersion":"kamino.dev/v1alpha1"}`, `{"kind":"NodeConfig","generation":1,"apiVersion":"kamino.dev/v1alpha1"}`, "", ""},
		"a quoted field":                    {`"apiVersion": 'kamino.dev/v1alpha1'`, `"apiVersion": 'kamino.dev/v1alpha1'`, "", ""},
		"ours with a mistake":               {doc + "\n  x: [\n", doc + "\n  x: [", "", ""},
		"nodeadm's in JSON":                 {`{"apiVersion":"node.eks.aws/v1alpha1"}`, "", "", ""},
		"cloud-config that writes it":       {"#cloud-config\nwrite_files:\n- path: /etc/kamino/nodeconfig.yaml\n  content: |\n    " + strings.ReplaceAll(doc, "\n", "\n    "), "", "", ""},
		"a boothook that writes it":         {"#cloud-boothook\ncat >/x <<E\n" + doc + "\nE\n", "", "", ""},
		"gzip that is damaged":              {packed.String()[:20], "", "", "decode user data"},
		"our type inside a script":          {"#!/bin/sh\ncat <<E\nContent-Type: application/node.kamino.dev\nE\n", "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			parts, err := ReadUserData([]byte(tt.text))
			var config []byte
			if err == nil {
				config, err = parts.NodeConfig()
			}
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("%v, want %s", err, tt.err)
				}
				return
			}
			if err != nil || strings.TrimSpace(string(config)) != tt.config || parts.Nonce() != tt.nonce {
				t.Errorf("%q, nonce %q, %v", config, parts.Nonce(), err)
			}
		})
	}
}

// FuzzReadUserData: whatever it is, it is read or refused.
func FuzzReadUserData(f *testing.F) {
	f.Add([]byte(multipartOf("Content-Type: application/node.kamino.dev\n\nx")))
	f.Add([]byte{0x1f, 0x8b, 8, 0})
	f.Fuzz(func(_ *testing.T, data []byte) {
		parts, err := ReadUserData(data)
		if err == nil {
			_, _ = parts.NodeConfig() // two of a type are an error
			parts.Nonce()
		}
	})
}
