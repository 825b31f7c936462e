package main

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// recorder is a job that notes what is called.
type recorder struct {
	peer    string
	calls   *[]string
	prepare error
	run     error
}

func (r *recorder) Peer() string { return r.peer }

func (r *recorder) note(what string) { *r.calls = append(*r.calls, r.peer+" "+what) }

func (r *recorder) Prepare(Case) error { r.note("prepare"); return r.prepare }
func (r *recorder) Close() error       { r.note("close"); return nil }

func (r *recorder) Run(n int) ([]float64, error) {
	r.note("run")
	return []float64{float64(n)}, r.run
}

func (r *recorder) Notes() map[string]float64 { return map[string]float64{"objects": 7} }

func TestJobsTakeTurns(t *testing.T) {
	var calls []string
	a, b := &recorder{peer: "a", calls: &calls}, &recorder{peer: "b", calls: &calls}
	results, out, err := runner{rounds: 4, budget: time.Hour, most: 1}.measure(Case{Job: "x"}, []Job{a, b})
	require.NoError(t, err)
	assert.Empty(t, out)
	assert.Equal(t, []string{
		"a prepare", "b prepare", "a run", "b run", // warm
		"a run", "b run", "b run", "a run", "b run", "a run", "a run", "b run",
		"a close", "b close",
	}, calls)
	assert.Equal(t, []Result{
		{Case: Case{Job: "x"}, Peer: "a", Operations: 1, Each: true, Samples: []float64{1, 1, 1, 1},
			Notes: map[string]float64{"objects": 7}},
		{Case: Case{Job: "x"}, Peer: "b", Operations: 1, Each: true, Samples: []float64{1, 1, 1, 1},
			Notes: map[string]float64{"objects": 7}},
	}, results)
}

func TestOrderIsFair(t *testing.T) {
	all := []*started{{n: 0}, {n: 1}, {n: 2}}
	places := map[int]int{} // the sum of the places of each
	for round := range 6 {
		for place, s := range order(all, round) {
			places[s.n] += place
		}
	}
	assert.Equal(t, map[int]int{0: 6, 1: 6, 2: 6}, places)
	assert.Empty(t, order(nil, 3))
}

func TestWarmingFindsHowManyFit(t *testing.T) {
	var calls []string
	s := &started{Job: &recorder{peer: "a", calls: &calls}}
	require.NoError(t, runner{budget: time.Hour, most: 10}.warm(s))
	assert.Equal(t, 10, s.n, "at most")
	require.NoError(t, runner{budget: time.Nanosecond, most: 10}.warm(s))
	assert.Equal(t, 1, s.n, "at least")
}

func TestEveryJobIsClosed(t *testing.T) {
	broken := errors.New("broken")
	for name, set := range map[string]func(*recorder){
		"prepare": func(r *recorder) { r.prepare = broken },
		"run":     func(r *recorder) { r.run = broken },
	} {
		t.Run(name, func(t *testing.T) {
			var calls []string
			a, b := &recorder{peer: "a", calls: &calls}, &recorder{peer: "b", calls: &calls}
			set(b)
			results, _, err := runner{rounds: 1, budget: time.Hour, most: 1}.measure(Case{}, []Job{a, b})
			require.ErrorIs(t, err, broken)
			assert.Empty(t, results)
			assert.Equal(t, []string{"a close", "b close"}, calls[len(calls)-2:])
		})
	}
}
