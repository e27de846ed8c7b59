package main

// The container image is built from scratch and has no root certificates. Where
// the system has some (the host's bundle in the chart, SSL_CERT_FILE), those are
// used, and these are not.
import _ "golang.org/x/crypto/x509roots/fallback"
