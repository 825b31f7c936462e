package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/sizing"
)

var fast = network{Host: 1e12, Store: 1e12}

// TestCalculatorAgreesWithTheSimulation: within 10 % of what is found in each level, and of what is left.
func TestCalculatorAgreesWithTheSimulation(t *testing.T) {
	for _, s := range steadyLoads {
		c := s.compare(5, options{HostLink: 25, Link: 100}.network())
		for at := range c.calculated.Found {
			require.LessOrEqual(t, c.apart(sizing.Found(at)), 0.1, "%+v: level %d: calculated %.3f, simulated %.3f", s, at,
				c.calculated.Found[at].Share, c.simulated.Found[at].Share)
		}
	}
}

// TestLines: one object after the other over each link, the first bytes of which go on at once.
func TestLines(t *testing.T) {
	l := newLinks(network{Host: 10, Store: 100, Delay: 1, Service: 0.5}, 2)
	// Request 1, service 0.5, the store sends from 1.5 on, the host gets from 2.5 on, for 10.
	require.InDelta(t, 12.5, l.fetch(0, 0, 100), 1e-9)
	// The store's link is free again at 2.5, that of the other host at once.
	require.InDelta(t, 13.5, l.fetch(0, 1, 100), 1e-9)
	// The first host's is free at 12.5.
	require.InDelta(t, 22.5, l.fetch(0, 0, 100), 1e-9)
	require.InDelta(t, 100+1+0.5+1, l.miss(100), 1e-9)
	// The host sends for 10, and the last byte is there a delay later.
	require.InDelta(t, 211, l.deliver(200, 1, 100), 1e-9)
	require.InDelta(t, 1e-9+float64(2+1), l.storeIn.busy+l.storeOut.busy-1, 1e-6)
	l = newLinks(network{Host: 100, Store: 10, Delay: 1}, 1)
	require.InDelta(t, 12, l.fetch(0, 0, 100), 1e-9, "the slower link decides")
	require.InDelta(t, 11, l.deliver(0, 0, 100), 1e-9)
}

// TestQueueOfTheStore: the mean time of requests that come at random and take equally long is known.
func TestQueueOfTheStore(t *testing.T) {
	const requests, busy = 40_000, 0.6
	trace := &sizing.Trace{Keys: make([]int32, requests), Bytes: []int64{1000}, Hosts: make([]uint16, requests)}
	found := slices.Repeat([]sizing.Found{sizing.Nowhere}, requests)
	n := network{Host: 1e12, Store: 1000} // a second for an object
	r := simulate(trace, found, load{rate: busy}, 1, sizing.Unbounded, n, 1)
	require.InDelta(t, busy, r.out, 0.02)
	require.InEpsilon(t, 1+busy/(2*(1-busy)), r.mean, 0.05, "Pollaczek and Khinchine, of one server and constant work")
	require.False(t, r.full())
	r = simulate(trace, found, load{rate: 2}, 1, sizing.Unbounded, n, 1)
	require.True(t, r.full())
}

// TestWhatOthersCompute: hosts that want an object while another one computes it compute it, too, and whoever wants it
// later gets it from the store.
func TestWhatOthersCompute(t *testing.T) {
	trace := &sizing.Trace{Keys: make([]int32, 1000), Bytes: []int64{1}, Hosts: make([]uint16, 1000)}
	for i := range trace.Hosts {
		trace.Hosts[i] = uint16(i)
	}
	found := trace.Replay(1000, 10, 0)
	none := simulate(trace, found, load{rate: 0.001, compute: 1e9}, 1000, sizing.Unbounded, fast, 1)
	require.InDelta(t, 1, none.plan.Found[sizing.Nowhere].Share, 1e-9)
	require.InDelta(t, 1, none.twice, 1e-9)
	all := simulate(trace, found, load{rate: 0.001}, 1000, sizing.Unbounded, fast, 1)
	require.InDelta(t, 1, all.plan.Found[sizing.InStore].Share, 1e-9)
	require.Zero(t, all.twice)
	without := simulate(trace, found, load{rate: 0.001}, 1000, 0, fast, 1)
	require.InDelta(t, 1, without.plan.Found[sizing.Nowhere].Share, 1e-9)
	require.Zero(t, without.sent+without.stored)
}

// TestConversations are as their comment says.
func TestConversations(t *testing.T) {
	l := loads[slices.IndexFunc(loads, func(l load) bool { return l.name == "kept" })]
	tr := l.trace(3, 10, 300)
	require.Equal(t, 3000, tr.Requests())
	seen := map[int32]bool{}
	lengths, again, stays := []int{}, 0, 0
	last := map[int32]uint16{}
	for i := range tr.Requests() {
		from, to := tr.Request(i)
		lengths = append(lengths, to-from)
		require.Zero(t, tr.Keys[from], "all begin with one block")
		for k := from; k < to; k++ {
			require.Equal(t, k+1 < to, tr.Cuts(k, to), "each is the child of the one in front of it")
			if k == from {
				require.Equal(t, int32(-1), tr.Parent(tr.Keys[k]))
			}
			if seen[tr.Keys[k]] {
				again++
			}
			seen[tr.Keys[k]] = true
		}
		if second := tr.Keys[from+1]; i > 0 {
			if host, ok := last[second]; ok {
				require.Equal(t, host, tr.Hosts[i])
				stays++
			}
		}
		last[tr.Keys[from+1]] = tr.Hosts[i]
	}
	slices.Sort(lengths)
	require.InDelta(t, 0.4, float64(again)/float64(len(tr.Keys)), 0.1, "what no cache can miss")
	require.InDelta(t, 0.4, float64(stays)/3000, 0.1)
	require.InDelta(t, 16, lengths[len(lengths)/2], 5)
	require.Greater(t, lengths[len(lengths)*99/100], 100)
}

// TestSameSeedSameResult, and the files that a run writes.
func TestSameSeedSameResult(t *testing.T) {
	o := options{Seed: 1, Hosts: []int{1, 3}, Loads: []string{"images", "conversations", "kept"}, Share: 0.1, HostLink: 25, Link: 100}
	var texts [2][]byte
	for i := range texts {
		o.Out = t.TempDir()
		require.NoError(t, run(o))
		var err error
		texts[i], err = os.ReadFile(filepath.Join(o.Out, "scale.md"))
		require.NoError(t, err)
		for _, name := range []string{"computed-images", "computed-conversations", "computed-kept", "link-images", "fetch-images"} {
			svg, err := os.ReadFile(filepath.Join(o.Out, "scale-"+name+".svg"))
			require.NoError(t, err)
			require.Contains(t, string(svg), "<svg ")
		}
	}
	require.Equal(t, string(texts[0]), string(texts[1]))
	require.Equal(t, 3*2*len(variants), strings.Count(string(texts[0]), "\n| images |")+strings.Count(string(texts[0]), "\n| conversations |")+
		strings.Count(string(texts[0]), "\n| kept |"))
}

// TestTraceFile: a trace of a file takes the place of drawn ones.
func TestTraceFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat(`{"timestamp": 1, "hash_ids": [0, 1]}`+"\n", 10)), 0o600))
	o := options{Seed: 1, Hosts: []int{1}, Loads: []string{"kept"}, Share: 1, HostLink: 25, Link: 100, Trace: path}
	rows, err := o.rows()
	require.NoError(t, err)
	require.Len(t, rows, len(variants))
	require.InDelta(t, 1, rows[0].plan.Found[sizing.InMemory].Share, 1e-9)
	require.InDelta(t, 2, rows[0].plan.PerRequest, 1e-9)
	o.Trace = path + ".none"
	_, err = o.rows()
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestOptions(t *testing.T) {
	good := options{Hosts: []int{1}, Share: 1, HostLink: 1, Link: 1}
	require.NoError(t, good.validate())
	for want, change := range map[string]func(*options){
		"--hosts": func(o *options) { o.Hosts = []int{1, 0} },
		"--share": func(o *options) { o.Share = 0 },
		"links":   func(o *options) { o.Link = -1 },
	} {
		o := good
		change(&o)
		require.ErrorContains(t, o.validate(), want)
	}
	good.Loads, good.Share = []string{"images"}, 1e-6
	_, err := good.rows()
	require.ErrorContains(t, err, "less than two requests")
}
