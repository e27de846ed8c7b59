package userdata

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"strings"
	"testing"
)

func multipartOf(parts ...string) string {
	text := "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"//\"\n\n"
	for _, p := range parts {
		text += "--//\n" + p + "\n"
	}
	return text + "--//--\n"
}

func TestRead(t *testing.T) {
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
		"none":                            {"", "", "", ""},
		"a script":                        {"#!/bin/bash\n# apiVersion: kamino.dev/v1alpha1\n", "", "", ""},
		"cloud-config":                    {"#cloud-config\nusers: []\n", "", "", ""},
		"ours alone":                      {doc, doc, "", ""},
		"ours with a comment":             {"# pool1\n" + doc, "# pool1\n" + doc, "", ""},
		"nodeadm's alone":                 {"apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\n", "", "", ""},
		"a part":                          {multipartOf("Content-Type: text/x-shellscript\n\n#!/bin/sh\n", part), doc, "", ""},
		"beside nodeadm's":                {multipartOf(theirs, part), doc, "", ""},
		"a part in base64":                {multipartOf("Content-Type: " + NodeConfigType + "\nContent-Transfer-Encoding: base64\n\n" + base64.StdEncoding.EncodeToString([]byte(doc))), doc, "", ""},
		"gzip":                            {packed.String(), doc, "", ""},
		"base64 of gzip":                  {base64.StdEncoding.EncodeToString(packed.Bytes()), doc, "", ""},
		"a canary":                        {multipartOf(theirs, order), "", nonce, ""},
		"a canary by ours":                {multipartOf(part, "Content-Type: application/canary.kamino.dev\n\n# kamino-canary-nonce: "+nonce), doc, nonce, ""},
		"a nonce in a script":             {multipartOf("Content-Type: text/x-shellscript\n\n#!/bin/sh\n# kamino-canary-nonce: " + nonce + "\n"), "", "", ""},
		"two of ours":                     {multipartOf(part, part), "", "", "two parts"},
		"no last boundary":                {strings.TrimSuffix(multipartOf(part), "--//--\n"), doc, "", ""},
		"no last boundary, theirs":        {strings.TrimSuffix(multipartOf(part, theirs), "--//--\n"), doc, "", ""},
		"no blank line after a header":    {multipartOf("Content-Type: text/x-shellscript; charset=\"us-ascii\"\n#!/bin/bash\nset -ex\n", part), doc, "", ""},
		"no blank line after ours":        {multipartOf("Content-Type: " + NodeConfigType + "\n" + doc), doc, "", ""},
		"share first, no blank line":      {multipartOf("Content-Type: " + NodeConfigType + "\nshare: 10\n" + doc), "share: 10\n" + doc, "", ""},
		"no field of ours, no blank line": {multipartOf("Content-Type: " + NodeConfigType + "\nGeneration: 1\n" + doc), "Generation: 1\n" + doc, "", ""},
		"JSON, no blank line":             {multipartOf("Content-Type: " + NodeConfigType + "\n" + `{"apiVersion":"kamino.dev/v1alpha1"}`), `{"apiVersion":"kamino.dev/v1alpha1"}`, "", ""},
		"more headers, no blank line":     {multipartOf("Content-Type: " + NodeConfigType + "\nContent-Disposition: attachment;\n filename=a\nMIME-Version: 1.0\nX-Merge-Type: list\n" + doc), doc, "", ""},
		"a comment before the headers":    {"# of team a\n" + multipartOf(part), "", "", "MIME message: its headers are indented, or do not begin in the first line"},
		"an indented message":             {"  " + strings.ReplaceAll(multipartOf(part), "\n", "\n  "), "", "", "MIME message: its headers are indented"},
		"an indented message, theirs":     {"  " + strings.ReplaceAll(multipartOf(theirs), "\n", "\n  "), "", "", ""},
		"a script that prints a message":  {"#!/bin/sh\ncat <<E\n" + multipartOf(part) + "E\n", "", "", ""},
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
			parts, err := Read([]byte(tt.text))
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
			if tt.config == "" || tt.nonce != "" {
				return
			}
			more, err := Read(parts.With(CanaryType, NonceComment+nonce))
			if err != nil {
				t.Fatal(err)
			}
			if config, err = more.NodeConfig(); err != nil || strings.TrimSpace(string(config)) != tt.config || more.Nonce() != nonce {
				t.Errorf("with one part more: %q, nonce %q, %v", config, more.Nonce(), err)
			}
		})
	}
}

// FuzzRead: whatever it is, it is read or refused; and a canary's, which has one part more, is read as its pool's.
func FuzzRead(f *testing.F) {
	f.Add([]byte(multipartOf("Content-Type: application/node.kamino.dev\n\nx")))
	f.Add([]byte(multipartOf("Content-Type: text/plain\n\napiVersion: kamino.dev/v1")))
	f.Add([]byte("apiVersion: kamino.dev/v1alpha1\r\nkind: NodeConfig"))
	f.Add([]byte{0x1f, 0x8b, 8, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		parts, err := Read(data)
		if err != nil {
			return
		}
		config, err := parts.NodeConfig()
		if err != nil || len(bytes.TrimSpace(config)) == 0 || parts.Nonce() != "" {
			return // no canary is made of it
		}
		more, err := Read(parts.With(CanaryType, NonceComment+strings.Repeat("ab", 32)))
		if err != nil {
			t.Fatalf("%q with one part more: %v", data, err)
		}
		got, err := more.NodeConfig()
		if err != nil || !bytes.Equal(bytes.TrimSpace(got), bytes.TrimSpace(config)) || more.Nonce() == "" {
			t.Errorf("%q with one part more: %q, nonce %q, %v; want %q", data, got, more.Nonce(), err, config)
		}
	})
}
