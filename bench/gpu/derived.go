package main

import "github.com/ringcache/ringcache/bench/internal/stats"

// Names of the arms. The peer uses the same ones.
const (
	goRegistered    = "ring registered, Go"
	goUnregistered  = "ring not registered, Go"
	torchRegistered = "ring registered, torch"
	torchPinned     = "torch pinned"
	torchPageable   = "torch pageable"
	receiver        = "vLLM receiver"
	receiverBatch   = "vLLM receiver, two items"
	receiverReused  = "vLLM receiver, reused buffer"
)

// torchArms are the arms of the Python peer.
var torchArms = []string{torchRegistered, torchPinned, torchPageable, receiver, receiverBatch, receiverReused}

func isReceiver(arm string) bool {
	return arm == receiver || arm == receiverBatch || arm == receiverReused
}

// derived compares two arms: how many times as fast is the first.
type derived struct {
	Size   int     `json:"size"`
	First  string  `json:"first"`
	Second string  `json:"second"`
	Times  float64 `json:"times_as_fast"`
	// Goal is the least that is wanted, 0 where nothing is.
	Goal float64 `json:"goal,omitempty"`
	// Verdict is whether the goal was met, or why there is none.
	Verdict string `json:"verdict"`
	// Noise is the larger spread of the two arms: a difference below it means nothing.
	Noise float64 `json:"noise"`
}

// comparisons are the questions of the measurement.
var comparisons = []struct {
	first, second string
	kib           []int // none: the sizes of objects
	goal          float64
}{
	{goRegistered, torchPinned, []int{4096, 65536, 262144}, 0.98},
	{torchRegistered, torchPinned, []int{4096, 65536, 262144}, 0.98},
	{goRegistered, goUnregistered, []int{65536}, 3},
	{goRegistered, receiver, nil, 0},
	{torchRegistered, receiver, nil, 0},
	{torchRegistered, receiverBatch, nil, 0},
	{torchRegistered, receiverReused, nil, 0},
}

// derive answers the comparisons whose arms were measured, by single copies.
func (r *report) derive() {
	for _, c := range comparisons {
		sizes := c.kib
		if sizes == nil {
			sizes = r.Options.ObjectKiB
		}
		for _, k := range sizes {
			one := cell{Size: k * kib, Batch: 1}
			first, second := r.find(c.first, one), r.find(c.second, one)
			if first == nil || second == nil {
				continue
			}
			d := derived{
				Size: one.Size, First: c.first, Second: c.second, Goal: c.goal,
				Times: stats.Ratio(second.Total.Median, first.Total.Median),
				Noise: max(first.Total.Spread, second.Total.Spread),
			}
			d.Verdict = verdict(d, r.Machine.Doubt)
			r.Derived = append(r.Derived, d)
		}
	}
}

func verdict(d derived, doubt string) string {
	switch {
	case doubt != "":
		return "none: " + doubt
	case d.Goal == 0:
		return "no goal"
	case d.Times >= d.Goal:
		return "met"
	case d.Times >= d.Goal*(1-d.Noise):
		return "missed, by less than the noise"
	default:
		return "missed"
	}
}

func (r *report) find(arm string, c cell) *copied {
	for i := range r.Copies {
		if r.Copies[i].point == (point{arm, c}) {
			return &r.Copies[i]
		}
	}
	return nil
}
