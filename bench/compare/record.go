package main

import (
	"encoding/json"
	"math"
	"os"
	"time"

	"github.com/ringcache/ringcache/bench/internal/stats"
)

// Record is everything that a run measured: the file raw.json.
type Record struct {
	Began   time.Time `json:"began"`
	Seconds float64   `json:"seconds"`
	Options options   `json:"options"`
	Machine Machine   `json:"machine"`
	Results []Result  `json:"results"`
	// LeftOut are peers that are not on this machine.
	LeftOut []LeftOut `json:"left_out"`
}

// LeftOut is what was not measured, and why.
type LeftOut struct {
	What   string `json:"what"`
	Reason string `json:"reason"`
}

// Result is what one peer took for one case.
type Result struct {
	Case
	Peer string `json:"peer"`
	// Operations of a round, and whether Samples has one time for each of them or a mean for each round.
	Operations int  `json:"operations"`
	Each       bool `json:"each"`
	// Samples are nanoseconds of one operation, in the order in which they were measured.
	Samples []float64          `json:"samples_ns"`
	Notes   map[string]float64 `json:"notes,omitempty"`
}

// add adds the samples of a round of n operations.
func (r *Result) add(n int, times []float64) {
	r.Operations, r.Each = n, len(times) > 1 || n == 1
	for _, t := range times {
		r.Samples = append(r.Samples, math.Round(t*10)/10)
	}
}

// Summary describes the samples.
func (r *Result) Summary() stats.Summary { return stats.Summarise([][]float64{r.Samples}) }

// quantile returns a quantile of the samples in nanoseconds.
func (r *Result) quantile(q float64) float64 { return stats.Quantile(stats.Sorted(r.Samples), q) }

func (r *Record) find(c Case, peer string) (*Result, bool) {
	for i := range r.Results {
		if r.Results[i].Case == c && r.Results[i].Peer == peer {
			return &r.Results[i], true
		}
	}
	return nil, false
}

// leaveOut notes what was left out, once.
func (r *Record) leaveOut(all []LeftOut) {
	for _, l := range all {
		known := false
		for _, k := range r.LeftOut {
			known = known || k == l
		}
		if !known {
			r.LeftOut = append(r.LeftOut, l)
		}
	}
}

func (r *Record) write(path string) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

func readRecord(path string) (*Record, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := new(Record)
	return r, json.Unmarshal(text, r)
}
