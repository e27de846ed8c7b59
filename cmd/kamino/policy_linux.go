package main

import "kamino.dev/kamino/agent/seal"

// checkPolicy reads a seal policy as strictly as the agent will, and counts the entries that nobody
// has reviewed.
func checkPolicy(data []byte) (unreviewed int, err error) {
	c, err := seal.ParsePolicy(data)
	return c.Unreviewed(), err
}
