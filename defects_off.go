//go:build !defects

package kamino

// A build with the tag "defects" can be given known bad behaviours one by one,
// to show that the tests notice. The product has none of it.

func faulty(e *Engine) *Engine { return e }

func faultySteps(_ *Run, steps []Step) []Step { return steps }
