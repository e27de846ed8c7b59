package main

import "kamino.dev/kamino/agent/seal"

// checkPolicy reads a seal policy as strictly as the agent will.
func checkPolicy(data []byte) error {
	_, err := seal.ParsePolicy(data)
	return err
}
