package providertest_test

import (
	"testing"

	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/providertest"
)

// The tests of a provider run the contract with a way to begin a fresh world. Here it is Azure's,
// with Microsoft's SDK in front of the emulator.
func ExampleRun() {
	_ = func(t *testing.T) { // TestContract of the provider
		providertest.Run(t, func(t *testing.T) providertest.World {
			return begin(t, setting{latencies: emulator.NoLatency()}).world()
		})
	}
}
