// Package alerts tests charts/kamino/alerts.yaml with the parser and the engine of Prometheus
// itself. It is a module of its own: Prometheus and Kubernetes disagree on versions of what both
// are linked with, and nothing else needs it.
package alerts
