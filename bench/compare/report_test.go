package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fixed is a record with two peers of two jobs.
func fixed() *Record {
	small := Case{Job: "new", Size: 4 * kib, Ring: "warm", RingBytes: mib}
	way := Case{Job: "delivery", Size: mib, Ring: "warm", RingBytes: 8 * mib}
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = 1000 * float64(i+1)
	}
	return &Record{
		Results: []Result{
			{Case: small, Peer: "vLLM", Samples: []float64{44_000, 40_000, 60_000}},
			{Case: small, Peer: oursPool, Samples: []float64{4000, 2000, 5000},
				Notes: map[string]float64{"heap_bytes": 12.4}},
			{Case: way, Peer: "vLLM", Each: true, Samples: hundred},
			{Case: way, Peer: oursPython, Each: true, Samples: []float64{25_000}},
		},
		LeftOut: []LeftOut{{"way: Redis", "not here"}},
	}
}

func TestTable(t *testing.T) {
	text := string(table(fixed()))
	for _, want := range []string{
		"| 4 KiB, warm ring of 1 MiB | 40 / 44 | 2 / 4 | 20 / 11 |\n",
		"| case | vLLM | ringcache Pool | vLLM / ringcache Pool |\n| --- | ---: | ---: | ---: |\n",
		"| 1 MiB, warm ring of 8 MiB | 50 / 99 | 25 / 25 | 2 / 4 |\n",
		"\n- 4 KiB, warm ring of 1 MiB, ringcache Pool: heap bytes 12\n",
		"| new | 4 KiB, warm ring of 1 MiB | vLLM / ringcache Pool | ≥ 20 | 20 | 11, missed |\n",
		"- way: Redis: not here\n",
	} {
		assert.Contains(t, text, want)
	}
	assert.NotContains(t, text, "## repeat", "what was not measured has no table")
	assert.NotContains(t, text, "not a result")

	r := fixed()
	r.Machine.LoadBefore = "1.50 0.40 0.20"
	assert.Contains(t, string(table(r)), "not a result")
}

func TestGoalsAtMost(t *testing.T) {
	g := goal{factor: 2, most: true}
	assert.Equal(t, "1.5", g.verdict(1.5))
	assert.Equal(t, "2.5, missed", g.verdict(2.5))
}

func TestGoalsNameWhatIsMeasured(t *testing.T) {
	for _, g := range goals {
		found := 0
		for _, e := range experiments {
			if e.name != g.job {
				continue
			}
			for _, j := range e.jobs(newEnvironment(options{}), e.cases(options{Prefault: 1})[0]) {
				if j.Peer() == g.faster || j.Peer() == g.slower {
					found++
				}
			}
		}
		assert.Equal(t, 2, found, "%+v", g)
	}
}

func TestGrowth(t *testing.T) {
	r := &Record{}
	for live, ns := range map[int]float64{100: 1000, 1000: 1500, 10_000: 1900} {
		c := Case{Job: "live-hit", Size: 256, Live: live}
		r.Results = append(r.Results,
			Result{Case: c, Peer: oursPool, Samples: []float64{ns, ns + 200}},
			Result{Case: c, Peer: "limit: a map", Samples: []float64{ns / 10}})
	}
	all := growth{job: "live-hit"}.of(r)
	require.Len(t, all, 1)
	assert.Equal(t, 10_000, all[0].c.Live)
	assert.InDelta(t, 1.9, all[0].first, 1e-9)
	assert.InDelta(t, 2000.0/1100, all[0].second, 1e-9)
	all = growth{job: "live-hit", beyond: "limit: a map"}.of(r)
	require.Len(t, all, 1)
	assert.InDelta(t, 900.0/190, all[0].first, 1e-9)
	assert.Contains(t, string(table(r)), "| live-hit | 256 B, 10000 live | (most - fewest) / limit: a map | ≤ 3 | 4.74, missed |")
}

func TestPlots(t *testing.T) {
	all := charts(fixed())
	require.Contains(t, all, "new-warm")
	c := all["new-warm"]
	require.Len(t, c.Lines, 2)
	assert.Equal(t, "vLLM", c.Lines[0].Label)
	assert.InDelta(t, 44, c.Lines[0].Points[0].Y, 1e-9, "the median in microseconds")
	assert.InDelta(t, 4*kib, c.Lines[0].Points[0].X, 1e-9)

	require.Contains(t, all, "latency-delivery-warm-1024")
	c = all["latency-delivery-warm-1024"]
	require.Len(t, c.Lines, 1, "one sample has no quantiles")
	last := c.Lines[0].Points[len(c.Lines[0].Points)-1]
	assert.InDelta(t, 100, last.X, 1e-9, "p99.9 needs a thousand samples")
	assert.InDelta(t, 99, last.Y, 1e-9)
	assert.Equal(t, "p99", c.XText(last.X))
}

func TestSizesAreReadable(t *testing.T) {
	for want, bytes := range map[string]float64{"256 B": 256, "4 KiB": 4096, "8.03 MiB": 8.03 * mib, "8 GiB": 8 << 30} {
		assert.Equal(t, want, sizeText(bytes))
	}
}
