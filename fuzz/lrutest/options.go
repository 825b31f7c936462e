package lrutest

import (
	"fmt"

	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/internal/harness"
	"github.com/ringcache/ringcache/fuzz/internal/harness/rules"
	"github.com/ringcache/ringcache/fuzz/model"
)

// New makes an empty cache with a capacity in bytes.
type New func(capacity float64) Cache

// NewPair makes both ends, empty, with a capacity in bytes. Where a test restarts the receiver, it
// goes on with that of another call.
type NewPair func(capacity float64) (Sender, Receiver)

// Options configure a test. The zero value checks what holds for any correct cache or pair.
type Options struct {
	// Without names invariants that are not checked; see [Invariants] and [PairInvariants].
	Without []string
	// Release switches the invariant same-as-vllm on: what is there after each operation is exactly
	// what this release of vLLM has then, "0.11.0" to "0.33.0". A standalone cache is the same
	// in all; mirrored pairs are not.
	Release string
	// GrowAnew is how a cache makes room for a value that replaces a smaller one: as if the
	// smaller one stayed beside it, as cachetools does before its version 8.
	GrowAnew bool

	// Capacity of all caches in bytes. If it is 0, there are various small ones, and Exhaust takes 3.
	Capacity float64
	// Seed is that of the first sequence. Check and CheckPair perform at least Ops operations,
	// 20000 if 0. FUZZ_SEED and FUZZ_OPS of the environment come first.
	Seed uint64
	Ops  int
	// Length is that of a sequence, 100 if 0.
	Length int
	// Depth is how many operations the histories of Exhaust have, 4 if 0.
	Depth int
}

// newest is the release whose rules pairs follow, without the option Release.
const newest = "0.33.0"

// sameAsVLLMName is an invariant of caches and of pairs that the option Release switches on.
const sameAsVLLMName = "same-as-vllm"

func (o Options) release() (model.Release, error) {
	if o.Release == "" {
		return model.Lookup(newest)
	}
	r, err := model.Lookup(o.Release)
	if err != nil {
		return r, fmt.Errorf("the option Release: %w", err)
	}
	return r, nil
}

// active are the invariants that the options leave.
func active[S any](o Options, all []fuzz.Invariant[S]) (out []fuzz.Invariant[S], err error) {
	if all, err = rules.Active(all, o.Without); err != nil {
		return nil, err
	}
	for _, i := range all {
		if i.Name != sameAsVLLMName || o.Release != "" {
			out = append(out, i)
		}
	}
	return out, nil
}

// subject begins what caches and pairs have in common.
func (o Options) subject() harness.Subject {
	s := harness.Subject{Package: "lrutest", Search: fuzz.Search{Seed: o.Seed, Ops: o.Ops, Length: o.Length}}
	if o.Ops == 0 {
		s.Search.Ops = 20_000
	}
	if o.Length == 0 {
		s.Search.Length = 100
	}
	return s
}
