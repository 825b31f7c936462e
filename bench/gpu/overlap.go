package main

import (
	"context"

	"github.com/ringcache/ringcache/bench/internal/stats"
)

// overlap is copies on one stream beside multiplications on another, by PyTorch.
type overlap struct {
	Arm     string        `json:"arm"`
	Size    int           `json:"size"`
	Copies  stats.Summary `json:"copies"`  // alone
	Compute stats.Summary `json:"compute"` // alone
	Both    stats.Summary `json:"both"`
	CPU     stats.Summary `json:"cpu"` // of the thread that submits both
	// Ratio is the time of both by the longer of the two: 1 if they hinder each other in nothing.
	Ratio float64 `json:"both_by_longer"`
}

// torchUnregistered is measured beside multiplications only.
const torchUnregistered = "ring not registered, torch"

// measureOverlap times copies of every size, registered and not.
func (b *bench) measureOverlap(ctx context.Context, p *peer) error {
	type point struct {
		Arm  string
		Size int
	}
	var points []point
	for _, size := range b.sizes() {
		for _, arm := range []string{torchRegistered, torchUnregistered} {
			if _, out := p.leftOut[arm]; !out {
				points = append(points, point{arm, size})
			}
		}
	}
	times := map[point][]overlapTimes{}
	err := inTurns(ctx, b, points, func(at point) error {
		var t overlapTimes
		err := p.ask(map[string]any{
			"op": "overlap", "arm": at.Arm, "size": at.Size, "stride": slotsOf(0, at.Size).stride, "matrix": b.Matrix,
			"rounds": 2,
		}, &t)
		if err != nil {
			return err
		}
		times[at] = append(times[at], t)
		return nil
	})
	for _, at := range points {
		if times[at] == nil {
			continue
		}
		var copies, compute, both, cpu [][]float64
		for _, t := range times[at] {
			copies, compute = append(copies, t.Copies), append(compute, t.Compute)
			both, cpu = append(both, t.Both), append(cpu, t.CPU)
		}
		row := overlap{Arm: at.Arm, Size: at.Size, Copies: stats.Summarise(copies), Compute: stats.Summarise(compute),
			Both: stats.Summarise(both), CPU: stats.Summarise(cpu)}
		row.Ratio = stats.Ratio(row.Both.Median, max(row.Copies.Median, row.Compute.Median))
		b.report.Overlap = append(b.report.Overlap, row)
	}
	return err
}

// overlapTimes are the peer's answer, in nanoseconds.
type overlapTimes struct {
	Copies  []float64 `json:"copies_ns"`
	Compute []float64 `json:"compute_ns"`
	Both    []float64 `json:"both_ns"`
	CPU     []float64 `json:"cpu_ns"`
}
