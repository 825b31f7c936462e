package linear_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/linear"
)

// did is a call that begins and ends at these times, by a client of its own.
type did struct {
	from, to     int64
	call, result any
}

func history(calls ...did) (h []porcupine.Operation) {
	for i, c := range calls {
		h = append(h, porcupine.Operation{ClientId: i, Call: c.from, Return: c.to, Input: c.call, Output: c.result})
	}
	return h
}

func put(v uint64) linear.StoreCall {
	return linear.StoreCall{Op: linear.Put, Key: "k", Value: v}
}

var (
	get    = linear.StoreCall{Op: linear.Get, Key: "k"}
	remove = linear.StoreCall{Op: linear.Remove, Key: "k"}
	done   = linear.StoreResult{Done: true}
	not    = linear.StoreResult{}
)

func is(v uint64) linear.StoreResult { return linear.StoreResult{Value: v} }

// TestModels: histories that an order explains, and the same with one result changed, which none does.
func TestModels(t *testing.T) {
	exact, evicts := linear.Store(linear.StoreOptions{}), linear.Store(linear.StoreOptions{Evicts: true})
	revives := linear.Handles(linear.HandlesOptions{Revives: true})
	alloc := linear.Allocator(linear.AllocatorOptions{Size: 100, FirstID: 6, IDLimit: 8})
	a := func(size int) linear.AllocatorCall { return linear.AllocatorCall{Size: size} }
	free := func(id uint32) linear.AllocatorCall { return linear.AllocatorCall{ID: id} }
	at := func(id uint32, address uint64) linear.AllocatorResult {
		return linear.AllocatorResult{ID: id, Address: address}
	}
	ask := func(key string) linear.CacheCall { return linear.CacheCall{Key: key} }
	made := func(v uint64) linear.CacheResult { return linear.CacheResult{Value: v, Made: true} }
	had := func(v uint64) linear.CacheResult { return linear.CacheResult{Value: v} }
	handle := func(kept bool) linear.HandleCall { return linear.HandleCall{Handle: "h", Kept: kept} }
	read := func(v uint64) linear.HandleResult { return linear.HandleResult{Value: v} }
	for _, c := range []struct {
		name  string
		model porcupine.Model
		ok    bool
		calls []did
	}{
		{"put, get, remove", exact, true, []did{{0, 1, put(5), done}, {2, 3, get, is(5)}, {4, 5, remove, done},
			{6, 7, get, not}}},
		{"get of what is put meanwhile", exact, true,
			[]did{{0, 9, put(5), done}, {1, 2, get, not}, {3, 4, get, is(5)}}},
		{"it appears and disappears", exact, false, []did{{0, 9, put(5), done}, {1, 2, get, is(5)}, {3, 4, get, not}}},
		{"the same, evicted", evicts, true, []did{{0, 9, put(5), done}, {1, 2, get, is(5)}, {3, 4, get, not}}},
		{"it comes back after it was evicted", evicts, false,
			[]did{{0, 1, put(5), done}, {2, 3, get, not}, {4, 5, get, is(5)}}},
		{"two puts of one key", exact, false, []did{{0, 1, put(5), done}, {2, 3, put(6), done}}},
		{"a put that meets another", exact, true,
			[]did{{0, 9, put(5), done}, {1, 2, put(6), linear.StoreResult{Busy: true}}}},
		{"a value of nobody", evicts, false, []did{{0, 1, put(5), done}, {2, 3, get, is(7)}}},
		{"removed twice", exact, false, []did{{0, 1, put(5), done}, {2, 3, remove, done}, {4, 5, remove, done}}},
		{"other keys don't matter", exact, true,
			[]did{{0, 1, put(5), done}, {2, 3, linear.StoreCall{Op: linear.Get, Key: "other"}, not}}},

		{"cleared", exact, true, []did{{0, 1, put(5), done}, {2, 3, linear.StoreCall{Op: linear.Clear}, done},
			{4, 5, get, not}}},
		{"a clear that leaves a key", exact, false,
			[]did{{0, 1, put(5), done}, {2, 3, linear.StoreCall{Op: linear.Clear}, done}, {4, 5, get, is(5)}}},
		{"a refused clear that clears", exact, false,
			[]did{{0, 1, put(5), done}, {2, 3, linear.StoreCall{Op: linear.Clear}, linear.StoreResult{Busy: true}},
				{4, 5, get, not}}},

		{"ids go on at 0", alloc, true, []did{{0, 1, a(10), at(6, 0)}, {2, 3, a(10), at(7, 50)},
			{4, 5, a(10), at(0, 90)}}},
		{"a live id is left out", alloc, true,
			[]did{{0, 1, a(10), at(6, 0)}, {2, 3, a(10), at(7, 10)},
				{4, 5, free(7), linear.AllocatorResult{Freed: true}},
				{6, 7, a(1), at(0, 20)}, {8, 9, a(1), at(1, 21)}, {10, 11, a(1), at(2, 22)}, {12, 13, a(1), at(3, 23)},
				{14, 15, a(1), at(4, 24)}, {16, 17, a(1), at(5, 25)}, {18, 19, a(1), at(7, 26)}}},
		{"overlap", alloc, false, []did{{0, 1, a(10), at(6, 0)}, {2, 3, a(10), at(7, 9)}}},
		{"outside", alloc, false, []did{{0, 1, a(10), at(6, 91)}}},
		{"an id twice", alloc, false, []did{{0, 1, a(10), at(6, 0)}, {2, 3, a(10), at(6, 10)}}},
		{"freed twice", alloc, false, []did{{0, 1, a(10), at(6, 0)},
			{2, 3, free(6), linear.AllocatorResult{Freed: true}},
			{4, 5, free(6), linear.AllocatorResult{Freed: true}}}},
		{"full while it is empty", alloc, false, []did{{0, 1, a(10), linear.AllocatorResult{Full: true}}}},
		{"full", alloc, true, []did{{0, 1, a(90), at(6, 0)}, {2, 3, a(20), linear.AllocatorResult{Full: true}}}},

		{"one makes it, others get it", linear.SingleFlight(false), true,
			[]did{{0, 9, ask("k"), made(1)}, {1, 8, ask("k"), had(1)}, {2, 7, ask("k"), had(1)}}},
		{"two make it", linear.SingleFlight(false), false, []did{{0, 9, ask("k"), made(1)}, {1, 8, ask("k"), made(2)}}},
		{"two make it, since it was forgotten", linear.SingleFlight(false), true,
			[]did{{0, 9, ask("k"), made(1)}, {1, 8, ask("k"), made(2)},
				{2, 3, linear.CacheCall{Key: "k", Forget: true}, had(0)}}},
		{"cleared, of all keys", linear.SingleFlight(false), true,
			[]did{{0, 1, ask("k"), made(1)}, {2, 3, linear.CacheCall{Clear: true}, had(0)}, {4, 5, ask("k"), made(2)}}},
		{"got before it was made", linear.SingleFlight(true), false,
			[]did{{0, 1, ask("k"), had(1)}, {2, 3, ask("k"), made(1)}}},

		{"the oldest goes", linear.LRU(2), true,
			[]did{{0, 1, ask("a"), made(1)}, {2, 3, ask("b"), made(2)}, {4, 5, ask("a"), had(1)},
				{6, 7, ask("c"), made(3)}, {8, 9, ask("b"), made(4)}}},
		{"the newest goes", linear.LRU(2), false,
			[]did{{0, 1, ask("a"), made(1)}, {2, 3, ask("b"), made(2)}, {4, 5, ask("c"), made(3)},
				{6, 7, ask("b"), made(4)}}},

		{"stale for ever", linear.Handles(linear.HandlesOptions{}), true,
			[]did{{0, 1, handle(true), read(3)}, {2, 3, handle(false), read(0)}, {4, 5, handle(false), read(0)}}},
		{"stale and back", linear.Handles(linear.HandlesOptions{}), false,
			[]did{{0, 1, handle(false), read(0)}, {2, 3, handle(false), read(3)}}},
		{"stale for a moment", revives, true,
			[]did{{0, 1, handle(false), read(3)}, {2, 3, handle(false), read(0)}, {4, 5, handle(false), read(3)}}},
		{"stale for a moment, and another value", revives, false,
			[]did{{0, 1, handle(false), read(3)}, {2, 3, handle(false), read(0)}, {4, 5, handle(false), read(4)}}},
		{"stale for a moment while it is kept", revives, false,
			[]did{{0, 1, handle(true), read(3)}, {2, 3, handle(true), read(0)}, {4, 5, handle(true), read(3)}}},
		{"another value", linear.Handles(linear.HandlesOptions{}), false,
			[]did{{0, 1, handle(false), read(3)}, {2, 3, handle(false), read(4)}}},
		{"stale while it is kept", linear.Handles(linear.HandlesOptions{}), false,
			[]did{{0, 1, handle(true), read(0)}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			err := linear.Check(c.model, history(c.calls...), linear.Options{Dir: dir})
			pages, globErr := filepath.Glob(filepath.Join(dir, "*.html"))
			require.NoError(t, globErr)
			if c.ok {
				require.NoError(t, err)
				require.Empty(t, pages)
				return
			}
			var v *linear.Violation
			require.ErrorAs(t, err, &v)
			require.Equal(t, []string{v.Page}, pages)
			require.ErrorContains(t, err, v.Page)
			page, readErr := os.ReadFile(v.Page)
			require.NoError(t, readErr)
			require.Contains(t, string(page), "<html")
		})
	}
}

func TestCheckCanFail(t *testing.T) {
	bad := history(did{0, 1, get, is(1)})
	err := linear.Check(linear.Store(linear.StoreOptions{}), bad,
		linear.Options{Dir: filepath.Join(t.TempDir(), "absent")})
	require.ErrorContains(t, err, "could not be written")
	require.ErrorIs(t, err, os.ErrNotExist)

	many := history()
	for i := range uint64(40) { // all at once
		many = append(many, history(did{0, 100, put(i + 1), done}, did{0, 100, remove, done},
			did{0, 100, get, is(i + 1)})...)
	}
	many = append(many, history(did{0, 100, get, is(1000)})...)
	require.ErrorIs(t, linear.Check(linear.Store(linear.StoreOptions{}), many,
		linear.Options{Timeout: time.Millisecond}), linear.ErrUnknown)
}

func TestRecorder(t *testing.T) {
	rec := linear.NewRecorder()
	a, b := rec.Client(), rec.Client()
	require.NoError(t, a.Do("call", func() (any, error) {
		return "outer", b.Do("inside", func() (any, error) { return "inner", nil })
	}))
	failed := errors.New("failed")
	require.ErrorIs(t, a.Do("call", func() (any, error) { return nil, failed }), failed)
	h := rec.History()
	require.Len(t, h, 2)
	require.Equal(t, 1, h[0].ClientId)
	require.Equal(t, "inner", h[0].Output)
	require.Equal(t, "call", h[1].Input)
	require.LessOrEqual(t, h[1].Call, h[0].Call)
	require.LessOrEqual(t, h[0].Return, h[1].Return)
}
