package worlds

import (
	"fmt"
	"slices"
	"time"
)

// Report is what the runs of a world come to, as JSON.
type Report struct {
	Seeds      int     `json:"seeds"`     // random walks
	Positions  int     `json:"positions"` // that something struck
	Violations int     `json:"violations"`
	Away       Away    `json:"awaySeconds"` // of every donor
	Histogram  []Bar   `json:"histogram"`
	Defects    Defects `json:"defects"`
}

// Defects are known bad behaviours, and how many of them were noticed.
type Defects struct {
	Seeded int `json:"seeded"`
	Caught int `json:"caught"`
}

// Away is for how many seconds donors were away.
type Away struct {
	Count int     `json:"count"`
	P50   float64 `json:"p50"`
	P99   float64 `json:"p99"`
	Max   float64 `json:"max"`
}

// Bar is how many donors were away for at most so long, and longer than the bar before tells.
type Bar struct {
	UpTo  string `json:"upTo"`
	Count int    `json:"count"`
}

var bars = []time.Duration{time.Minute, 2 * time.Minute, 3 * time.Minute, 5 * time.Minute, 10 * time.Minute,
	20 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 4 * time.Hour, 24 * time.Hour}

// AwayOf sums times up; it sorts them.
func AwayOf(list []time.Duration) Away {
	if len(list) == 0 {
		return Away{}
	}
	slices.Sort(list)
	at := func(share float64) float64 {
		return list[min(int(share*float64(len(list))), len(list)-1)].Round(time.Second).Seconds()
	}
	return Away{len(list), at(0.5), at(0.99), at(1)}
}

func (a Away) String() string {
	return fmt.Sprintf("%d times, p50 %.0f s, p99 %.0f s, max %.0f s", a.Count, a.P50, a.P99, a.Max)
}

// Add adds times. Quantiles of several lists together are those of the longest.
func (r *Report) Add(list []time.Duration) {
	more := AwayOf(list)
	count, worst := r.Away.Count+more.Count, max(r.Away.Max, more.Max)
	if more.Count >= r.Away.Count {
		r.Away = more
	}
	r.Away.Count, r.Away.Max = count, worst
	if r.Histogram == nil {
		for _, d := range bars {
			r.Histogram = append(r.Histogram, Bar{UpTo: upTo(d)})
		}
	}
	for _, d := range list {
		i, _ := slices.BinarySearch(bars, d)
		r.Histogram[min(i, len(bars)-1)].Count++
	}
}

// upTo is the end of a bar in whole minutes or hours.
func upTo(d time.Duration) string {
	if d >= time.Hour {
		return fmt.Sprintf("%d h", d/time.Hour)
	}
	return fmt.Sprintf("%d min", d/time.Minute)
}
