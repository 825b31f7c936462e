package mmcache

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/invariants"
	"github.com/ringcache/ringcache/serde"
)

// openDamaged opens a cache that keeps items, with a request for item "a" that is open
// and holds memory for item "b", too.
func openDamaged(t *testing.T) (*processorOnly, *Request) {
	p, err := openProcessorOnly(Options{Mode: modeProcessorOnly, Capacity: 1000, InFlight: 100})
	require.NoError(t, err)
	r, err := p.Begin(context.Background(), "r", Want{Key: "a", Bytes: 40}, Want{Key: "b", Bytes: 40})
	require.NoError(t, err)
	_, err = r.Item(context.Background(), "a", Ready(eightBytes(), nil))
	require.NoError(t, err)
	require.NoError(t, p.CheckStructure())
	return p, r
}

func eightBytes() *serde.Item {
	return &serde.Item{Modality: "image", Elems: []serde.Elem{{
		Key: "p", Data: &serde.Tensor{DType: "uint8", Shape: []int{8}, Data: make([]byte, 8)},
	}}}
}

func (p *processorOnly) entryOf(key string) *cachedEntry {
	e, _, _ := p.lru.Peek(key)
	return e
}

// Every invariant can be broken, and CheckStructure reports it.
func TestCheckStructureFinds(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(p *processorOnly, r *Request)
		text   string
	}{
		"nothing":                   {func(*processorOnly, *Request) {}, ""},
		"a request too many":        {func(p *processorOnly, _ *Request) { p.stats.Begun++ }, "1 requests are open, 2 are counted"},
		"a request without its id":  {func(p *processorOnly, _ *Request) { delete(p.ids, "r") }, "1 requests have not ended, 0 ids are taken"},
		"lost bytes":                {func(p *processorOnly, _ *Request) { p.budget.used-- }, "claims hold 40 bytes, 39 are in use of 100"},
		"more bytes than there are": {func(p *processorOnly, _ *Request) { p.budget.limit = 30 }, "claims hold 40 bytes, 40 are in use of 30"},
		"a claim of less than none": {func(p *processorOnly, r *Request) { r.claim.bytes, p.budget.used = -1, -1 }, "a claim holds -1 bytes"},
		"a claim that could go on": {func(p *processorOnly, _ *Request) {
			p.budget.line = []*claim{{arrival: 9, bytes: 1}}
		}, "the claim at place 0 of the line waits for 1 bytes, which are free"},
		"claims out of order": {func(p *processorOnly, _ *Request) {
			p.budget.line = []*claim{{arrival: 9, bytes: 90}, {arrival: 8, bytes: 90}}
		}, "the claim at place 1 of the line came before the one in front of it"},
		"a claim that others pass for ever": {func(p *processorOnly, _ *Request) {
			p.budget.line = []*claim{{arrival: 9, bytes: 90, passed: 101}}
		}, "the claim at place 0 was held up by 101 bytes, of at most 100"},
		"later claims": {func(p *processorOnly, _ *Request) {
			p.budget.line, p.budget.later = []*claim{{arrival: 9, bytes: 90}}, 7
		}, "later claims hold 0 bytes, 7 are accounted"},
		"an item that is in use and not pinned": {func(p *processorOnly, _ *Request) { p.lru.Unpin("a") }, `"a" has 1 users, pinned false, invalidated false`},
		"an invalidated item without users": {func(p *processorOnly, _ *Request) {
			p.lru.Unpin("a")
			e := p.entryOf("a")
			e.users, e.invalidated = 0, true
		}, `"a" has 0 users, pinned false, invalidated true`},
	} {
		t.Run(name, func(t *testing.T) {
			p, r := openDamaged(t)
			c.damage(p, r)
			if c.text == "" {
				require.NoError(t, p.CheckStructure())
				return
			}
			require.ErrorContains(t, p.CheckStructure(), c.text)
		})
	}
}

// Builds that check invariants do so when something changes.
func TestChangesAreChecked(t *testing.T) {
	ctx := context.Background()
	for name, c := range map[string]struct {
		change func(p *processorOnly, r *Request)
		text   string
	}{
		"the budget, when bytes come back": {func(p *processorOnly, r *Request) {
			p.budget.used++
			r.Rollback()
		}, "broken invariant: mmcache: budget: claims hold 0 bytes, 1 are in use of 100"},
		"the budget, when bytes are claimed": {func(p *processorOnly, _ *Request) {
			p.budget.used++
			_, _, _ = p.budget.acquire(ctx, ctx, 10)
		}, "broken invariant: mmcache: budget: claims hold 50 bytes, 51 are in use of 100"},
		"the counts, when a request ends": {func(p *processorOnly, r *Request) {
			p.stats.Begun++
			r.Rollback()
		}, "broken invariant: mmcache: 0 requests are open, 1 are counted"},
		"the ids, when a request begins": {func(p *processorOnly, _ *Request) {
			p.ids["nobody"] = nil
			_, _ = p.register("other", nil)
		}, "broken invariant: mmcache: 2 requests have not ended, 3 ids are taken"},
		"the state of a request": {func(p *processorOnly, r *Request) {
			p.cache.mu.Lock()
			defer p.cache.mu.Unlock()
			r.become(open)
		}, `broken invariant: mmcache: request "r" came from begun to begun`},
		"calls that leave a request": {func(_ *processorOnly, r *Request) {
			r.Rollback()
			r.leave()
		}, `broken invariant: mmcache: request "r" was left more often than entered`},
		"what a request holds at its end": {func(p *processorOnly, r *Request) {
			r.claim.bytes, p.budget.used = r.claim.bytes+5, p.budget.used+5
			r.Rollback()
		}, `broken invariant: mmcache: request "r" has ended and holds 5 bytes`},
		"what an item gives back": {func(_ *processorOnly, r *Request) { r.release(r.find("b"), 41) },
			"broken invariant: mmcache: budget: a claim holds -1 bytes\nmmcache: budget: claims hold -1 bytes, -1 are in use of 100"},
		"what an item gives back before the request has memory": {func(_ *processorOnly, r *Request) {
			r.claim = nil
			r.release(r.find("b"), 41)
		}, `broken invariant: mmcache: item "b" of request "r" is charged -1 bytes`},
		"a build that nobody can join": {func(p *processorOnly, _ *Request) {
			f, _ := p.builds.join("c", "")
			delete(p.builds.byKey, "c")
			p.builds.end("c", f, entry{}, errors.New("not made"))
		}, `broken invariant: mmcache: the build of "c" was not known`},
		"a build without an item": {func(p *processorOnly, _ *Request) {
			f, _ := p.builds.join("c", "")
			p.builds.end("c", f, entry{}, nil)
		}, `broken invariant: mmcache: the build of "c" ends with an item: false, and with the error: <nil>`},
		"the users of an item": {func(p *processorOnly, r *Request) {
			p.entryOf("a").users++
			r.Rollback()
			p.lru.Unpin("a")
			p.Invalidate("a")
		}, `broken invariant: mmcache: "a" has 1 users, pinned false, invalidated true`},
	} {
		t.Run(name, func(t *testing.T) {
			p, r := openDamaged(t)
			change := func() { c.change(p, r) }
			if !invariants.Enabled {
				require.NotPanics(t, change)
				return
			}
			require.PanicsWithError(t, c.text, change)
		})
	}
}
