package generate_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/generate"
	"github.com/ringcache/ringcache/fuzz/model"
)

// seen counts operations with what came of them.
type seen map[string]int

// perform generates sequences and lets the model perform them.
func perform(t *testing.T, version string, seeds int) seen {
	release, err := model.Lookup(version)
	require.NoError(t, err)
	out := seen{}
	next := generate.Store(generate.StoreOptions{Generation: version, Segment: "s", Lock: "lock"})
	for seed := range seeds {
		ops := next(fuzz.FromSeed(uint64(seed)), 200)
		require.LessOrEqual(t, len(ops), 200)
		require.Equal(t, fuzz.Format(ops), fuzz.Format(next(fuzz.FromSeed(uint64(seed)), 200)),
			"the same choices, another sequence")
		parsed, err := fuzz.Parse(fuzz.Format(ops))
		require.NoError(t, err)
		require.Equal(t, fuzz.Format(ops), fuzz.Format(parsed))
		performed, replies, err := fuzz.Run(model.NewStore(release, model.StoreOptions{}), ops)
		require.NoError(t, err)
		for i, r := range replies {
			out[performed[i].Name+" "+r.Kind]++
			out.borders(performed[i], r)
		}
	}
	return out
}

func (s seen) borders(op fuzz.Op, r fuzz.Reply) {
	if op.Name != "store.state" || r.Kind != "" {
		return
	}
	ring := r.Fields["ring"].(map[string]any)
	start, end := ring["start"].(int64), ring["end"].(int64)
	switch {
	case start == 0 && end == 0 && ring["id_end"] != uint32(0):
		s["empty again"]++
	}
	for _, op := range []string{"start", "end"} {
		if ring[op].(int64) > 0 {
			s[op+" moved"]++
		}
	}
}

func TestStoresReachTheirBorders(t *testing.T) {
	for version, want := range map[string][]string{
		"0.11.0": {"store.get ", "store.free_unused "},
		"0.11.2": {"store.get ", "store.get stale", "empty again"},
		"0.27.1": {"store.touch ", "store.get stale", "empty again"},
		"0.33.0": {
			"store.touch ", "store.touch stale", "store.touch bad_signature", "store.get stale",
			"store.get bad_signature",
			"store.verify bad_signature", "store.verify ", "store.signature ", "store.signature not_found",
			"store.release_touches ", "empty again",
		},
	} {
		t.Run(version, func(t *testing.T) {
			s := perform(t, version, 20)
			for _, what := range append(want, "store.put ", "store.put full", "store.put too_large", "store.put exists",
				"store.lookup ", "store.lookup not_found", "store.clear ", "start moved", "end moved") {
				require.NotZero(t, s[what], "%q in %v", what, s)
			}
			if version == "0.11.0" || version == "0.11.2" {
				require.Zero(t, s["store.touch "])
			}
			t.Log(fmt.Sprint(s))
		})
	}
}

// TestStoreFromBytes: Go's fuzzer draws from few bytes, and a sequence ends with them.
func TestStoreFromBytes(t *testing.T) {
	for _, policy := range []string{"fifo", "pool"} {
		next := generate.Store(generate.StoreOptions{Policy: policy})
		short, long := next(fuzz.FromBytes(nil), 100),
			next(fuzz.FromBytes([]byte("0123456789abcdef0123456789abcdef")), 100)
		require.Equal(t, "store.create", short[0].Name)
		require.Less(t, len(short), len(long))
		require.LessOrEqual(t, len(next(fuzz.FromSeed(1), 3)), 3)
	}
}
