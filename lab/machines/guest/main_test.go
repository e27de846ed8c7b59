package main

import "testing"

func TestUnknownVerbIsRefused(t *testing.T) {
	if run("dance") == nil {
		t.Error("an unknown verb is taken")
	}
}
