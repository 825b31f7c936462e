package main

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// noted is a store that notes what is called.
type noted struct {
	copies
	removed []string
	loads   []string
	broken  bool
}

func (n *noted) load(key string, into []byte) error {
	n.loads = append(n.loads, key)
	err := n.copies.load(key, into)
	if n.broken {
		into[len(into)/2] ^= 1
	}
	return err
}

func (n *noted) remove(key string) error {
	n.removed = append(n.removed, key)
	return n.copies.remove(key)
}

func newNoted() *noted { return &noted{copies: copies{at: map[string]int{}}} }

func TestLoadsTakeOutputsInTurn(t *testing.T) {
	s := newNoted()
	j := &outputJob{peer: "noted", store: s}
	require.NoError(t, j.Prepare(Case{Job: "encoder-load", Size: 1000}))
	assert.Len(t, j.keys, outputsKept)
	assert.Empty(t, s.removed, "nothing has to go")
	s.loads = nil
	times, err := j.Run(3 * outputsKept)
	require.NoError(t, err)
	assert.Len(t, times, 3*outputsKept)
	seen := map[string]int{}
	for _, k := range s.loads {
		seen[k]++
	}
	for _, k := range j.keys {
		assert.Equal(t, 3, seen[k])
	}
}

func TestSavesRemoveTheOldest(t *testing.T) {
	s := newNoted()
	j := &outputJob{peer: "noted", store: s}
	require.NoError(t, j.Prepare(Case{Job: "encoder-save", Size: 1000}))
	s.removed = nil
	before := slices.Clone(j.keys)
	_, err := j.Run(outputsKept)
	require.NoError(t, err)
	assert.Equal(t, before, s.removed)
	assert.Len(t, j.keys, outputsKept)
}

func TestAStoreThatReturnsOtherBytesIsAnError(t *testing.T) {
	s := newNoted()
	s.broken = true
	for _, job := range []string{"encoder-save", "encoder-load"} {
		require.ErrorContains(t, (&outputJob{peer: "noted", store: s}).Prepare(Case{Job: job, Size: 1000}),
			"does not return what was saved")
	}
}

// Our stores and the limits do what the jobs ask for, at the end of which nothing is left.
func TestStoresOfOutputs(t *testing.T) {
	e := newEnvironment(options{Disk: t.TempDir()})
	for _, save := range []bool{true, false} {
		for _, m := range outputPeers(save) {
			j, ok := m.make(e).(*outputJob)
			if !ok {
				continue // in Python
			}
			job := "encoder-load"
			if save {
				job = "encoder-save"
			}
			t.Run(job+", "+j.Peer(), func(t *testing.T) {
				err := j.Prepare(Case{Job: job, Size: 4 * outputColumns})
				require.NoError(t, err)
				_, err = j.Run(2 * outputsKept)
				require.NoError(t, errors.Join(err, j.verify(), j.Close()))
			})
		}
	}
	assert.NotEmpty(t, e.versions["file system"])
}

func TestRatesInTheTable(t *testing.T) {
	c := Case{Job: "encoder-save", Size: outputSizes[0]}
	r := &Record{Results: []Result{
		{Case: c, Peer: "vLLM, files", Each: true, Samples: []float64{3 * 275251.2, 3 * 275251.2}},
		{Case: c, Peer: oursMemory, Each: true, Samples: []float64{275251.2}},
	}}
	text := string(table(r))
	assert.Contains(t, text, "| 2.62 MiB | 826 / 826 (3.33 GB/s) | 275 / 275 (10 GB/s) |")
	assert.Contains(t, text, "P50 / p99, and GB/s at the first.")
	assert.Contains(t, text, "| encoder-save | 2.62 MiB | vLLM, files / ringcache memory | ≥ 3 | 3 | 3 |")
}
