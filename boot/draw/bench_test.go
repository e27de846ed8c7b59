package draw_test

import (
	"slices"
	"testing"

	"kamino.dev/kamino/boot/internal/sample"
	"kamino.dev/kamino/internal/bench"
	"kamino.dev/kamino/internal/browser"
)

func TestBenchPage(t *testing.T) {
	bench.Need(t)
	page := parkedPage(t, sample.Options{Name: "big", Seed: 3, Units: 1000, Parked: 1000 * sec})
	bench.Figure("boot_page_1000_units", float64(len(page))/1000, "kB", 500)
	exe := browser.Find(t)
	var drawn []float64
	for range 5 {
		drawn = append(drawn, openPage(t, exe, page).Drawn)
	}
	slices.Sort(drawn)
	bench.Figure("boot_page_drawn", drawn[len(drawn)/2], "ms", 200)
}
