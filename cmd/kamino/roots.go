package main

import (
	"crypto/x509"
	"os"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// systemRoots are the files and directories where crypto/x509 looks for root certificates on Linux
// (go.dev/src/crypto/x509/root_linux.go).
var systemRoots = []string{
	"/etc/ssl/certs", "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
	"/etc/pki/tls/cacert.pem", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/ssl/cert.pem", "/etc/pki/tls/certs",
}

// bringRoots adds Mozilla's root certificates if the system has none, because the container image
// is built from scratch. Roots of the system, or of SSL_CERT_FILE and SSL_CERT_DIR, take
// precedence. They are parsed only when needed, which saves 40 MB.
func bringRoots(getenv func(string) string) {
	if getenv("SSL_CERT_FILE") != "" || getenv("SSL_CERT_DIR") != "" {
		return
	}
	for _, path := range systemRoots {
		if _, err := os.Stat(path); err == nil {
			return
		}
	}
	pool := x509.NewCertPool()
	for root := range bundle.Roots() {
		cert, err := x509.ParseCertificate(root.Certificate)
		if err != nil {
			continue // one bad root must not disable the others
		}
		if root.Constraint == nil {
			pool.AddCert(cert)
		} else {
			pool.AddCertWithConstraint(cert, root.Constraint)
		}
	}
	x509.SetFallbackRoots(pool)
}
