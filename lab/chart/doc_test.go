// Package chart tests charts/vmss-prototype: rendered by Helm's own library,
// checked by a real API server, and run.
package chart

const namespace = "kamino-system"
