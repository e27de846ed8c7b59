package main

import (
	"testing"

	"kamino.dev/kamino/internal/wording"
)

// TestTexts: what an operator can see of this program stands in one file, to be read in one
// sitting, and has none of the words that CONTRIBUTING says not to write.
func TestTexts(t *testing.T) { wording.Check(t) }
