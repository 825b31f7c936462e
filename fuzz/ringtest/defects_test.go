package ringtest_test

import (
	"encoding/binary"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/internal/harness/harnesstest"
	"github.com/ringcache/ringcache/fuzz/model"
	"github.com/ringcache/ringcache/fuzz/ringtest"
)

// defects are one for each invariant, by its name.
var defects = map[string]struct {
	ring    broken
	release model.Release
	test    ringtest.Options
}{
	"bounds": {ring: broken{alloc: func(p *plain, size int) (uint64, uint32, error) {
		address, id, err := p.Alloc(size)
		if err == nil && p.End == len(p.Memory) {
			address += 2 // across the end
		}
		return address, id, err
	}}},
	"no-overlap": {ring: broken{alloc: func(p *plain, size int) (uint64, uint32, error) {
		p.Start += 3 // of the limit, up to the oldest chunk
		defer func() { p.Start -= 3 }()
		return p.Alloc(size)
	}}},
	"headers": {ring: broken{alloc: func(p *plain, size int) (uint64, uint32, error) {
		address, id, err := p.Alloc(size)
		if err == nil && size == 2 {
			binary.LittleEndian.PutUint32(p.Memory[model.Offset(int(address), len(p.Memory))+4:], 2)
		}
		return address, id, err
	}}},
	"payload": {ring: broken{alloc: func(p *plain, size int) (uint64, uint32, error) {
		address, id, err := p.Alloc(size)
		if err != nil && p.End > 0 {
			p.Memory[model.Offset(p.End-1, len(p.Memory))]++ // the last byte of the newest chunk
		}
		return address, id, err
	}}},
	"live": {ring: broken{live: func(p *plain) map[uint32]uint64 {
		out := p.Live()
		if p.End-p.Start == len(p.Memory) {
			delete(out, p.IDStart)
		}
		return out
	}}},
	"fifo": {ring: broken{free: func(p *plain, ids []uint32) []uint32 {
		freed := p.Free(ids)
		slices.Reverse(freed)
		return freed
	}}, test: ringtest.Options{FIFO: true}},
	"id-window": {ring: broken{state: func(p *plain) ringtest.State {
		s := p.State()
		if s.IDEnd == 0 && s.IDStart != 0 {
			s.IDEnd = 1 << 31
		}
		return s
	}}},
	"ids-unique":   {release: model.Release{IDsRestart: true}},
	"stale-handle": {release: model.Release{IDsRestart: true}, test: ringtest.Options{Without: []string{"ids-unique"}}},
	"refusal": {ring: broken{alloc: func(p *plain, size int) (uint64, uint32, error) {
		address, id, err := p.Alloc(size)
		if err != nil && len(p.FIFO.Live) > 0 {
			p.End++
		}
		return address, id, err
	}}},
	"stale-at-once": {test: ringtest.Options{StaleAtOnce: true}}, // as vLLM, which overwrites no header early
	"drain": {ring: broken{free: func(p *plain, ids []uint32) []uint32 {
		freed := p.Free(ids)
		if len(p.FIFO.Live) == 0 {
			p.Start, p.End = 5, 5
		}
		return freed
	}}},
	"placement": {release: model.Release{IDsRestart: true},
		test: ringtest.Options{Release: "0.33.0", Without: []string{"ids-unique", "stale-handle"}}},
	"panic": {ring: broken{alloc: func(p *plain, size int) (uint64, uint32, error) {
		_ = make([]byte, max(size, -1))
		return p.Alloc(size)
	}}},
}

func newBroken(name string) ringtest.New {
	return func(size int, firstID uint32) ringtest.Ring {
		r := defects[name].ring
		r.plain = newPlain(defects[name].release, size, firstID)
		return r
	}
}

// Each invariant finds the defect that it is there for, the same in every way of testing, and what
// is printed shows it again.
func TestEachInvariantFindsItsDefect(t *testing.T) {
	names := []string{"panic"}
	for _, inv := range ringtest.Invariants() {
		require.NotEmpty(t, inv.Why)
		names = append(names, inv.Name)
	}
	require.ElementsMatch(t, names, slices.Collect(maps.Keys(defects)))
	for name, d := range defects {
		t.Run(name, func(t *testing.T) {
			report := harnesstest.FailureOf(t, func(t testing.TB) { ringtest.Check(t, newBroken(name), d.test) })
			require.Contains(t, report, ":\n"+name+":")
			require.Contains(t, report, `again: FUZZ_SEED=`)
			var lines []string
			for _, line := range strings.Split(report, "\n") {
				if line = strings.TrimSpace(line); strings.HasPrefix(line, "{") {
					lines = append(lines, line)
				}
			}
			require.LessOrEqual(t, len(lines), 9, "%s", report)
			t.Log(report)
			again := harnesstest.FailureOf(t, func(t testing.TB) {
				ringtest.Replay(t, newBroken(name), d.test, strings.Join(lines, "\n"))
			})
			require.Contains(t, again, "ringtest: "+name+":")
			if name == "bounds" || name == "panic" {
				return
			}
			d.test.Without, d.test.Ops = append(slices.Clone(d.test.Without), name), 5000
			require.NotContains(t, harnesstest.FailureOf(t, func(t testing.TB) {
				ringtest.Check(t, newBroken(name), d.test)
			}), ":\n"+name+":", "switched off")
		})
	}
}
