package pycompat

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Generation is everything in which one release of vLLM differs from others, as far
// as this library is concerned. Code asks a Generation and never compares versions.
//
// There is one record for each release, and all users share it by pointer: treat
// every field, and the elements of every list, as read-only. In options a nil
// *Generation stands for the newest release; a constructor calls [Resolve] once
// and keeps the pointer that it gets.
// See docs/decisions.md, "A release is one record, shared by pointer".
type Generation struct {
	// Version is the release, such as "0.32.0", or the engine's own version for a
	// Generation from [TreatAs].
	Version string
	// DataOffset is the number of bytes in front of the ring: 0, or 32 where the
	// secret for signing handles lies there. A segment for a ring of N bytes is
	// N + DataOffset bytes long.
	DataOffset int
	// Signed is true where a handle carries an HMAC-SHA256 signature.
	Signed bool
	// Counting is the rule by which writer and readers count uses.
	Counting CountRule
	// IDsRestart is true where clear restarts chunk ids at 0. Elsewhere ids only
	// rise.
	IDsRestart bool
	// ItemForm is the wire form of a MultiModalKwargsItem.
	ItemForm ItemForm
	// FeatureHash is true where a feature spec has the field mm_hash.
	FeatureHash bool
	// FixedName is true where all servers of a host share one default segment
	// name. Elsewhere the default name ends in a fresh UUID.
	FixedName bool
	// Rereads is true where an engine may read an address again after all its
	// workers have read it: its newer model runner (on by default in 0.33.0,
	// perhaps on from 0.21.0) resumes a preempted request as a new one.
	Rereads bool
	// Hash is the form of hash streams and keys.
	Hash HashRules
	// Cache is how the mirrored LRU caches of the frontend (P0) and the engine (P1)
	// behave (vllm/multimodal/cache.py and cache/, vllm/utils/cache.py).
	Cache struct {
		// Touch is true where all items of a request are touched before the first is
		// looked up.
		Touch bool
		// GhostTouch is true where the touch of an absent key leaves an entry in the
		// order of use that has no value; eviction that comes across one never
		// returns.
		GhostTouch bool
		// PutIfFits is true where an item larger than the cache is passed on without
		// being stored. Elsewhere it fails the request.
		PutIfFits bool
		// MissError is true where an engine that misses items answers with their keys.
		// Elsewhere it stops working.
		MissError bool
		// FreshWins is true where an item that arrives with data replaces the cached
		// one of its key. Elsewhere the cached one is used and the data dropped.
		FreshWins bool
		// ExternalLBAlone is true where external load balancing is enough for a
		// frontend to share a cache with its engine. Elsewhere there must be a
		// single API server too (vllm/multimodal/registry.py).
		ExternalLBAlone bool
	}
	// Encoder is how the scheduler keeps account of the encoder's outputs on the device
	// (vllm/v1/core/encoder_cache_manager.py).
	Encoder struct {
		// Tokens is true where room is counted in tokens of placeholders. Elsewhere in
		// embeddings, of which a placeholder can have fewer.
		Tokens bool
		// CopiedInputs is true where a request that ends frees its inputs in the order of a
		// copied set. The copy of a set can have another order than the set.
		CopiedInputs bool
		// OwnInputs is true where a request's inputs are those that it allocated or hit.
		// Elsewhere all whose item is cached, whoever needs it.
		OwnInputs bool
		// SparesAllocated is true where an item that was evicted, and then allocated
		// again before workers were told, is not reported to them. Elsewhere they lose it.
		SparesAllocated bool
		// HoldsToLast is true where a request that has an item more than once needs it
		// until its last input with it is freed. Elsewhere until the first one is.
		HoldsToLast bool
		// KeepsCount is true where an item counts as much as it did when it was allocated,
		// until it goes. Elsewhere it counts, once it is free, as much as for the
		// request that freed it last, which can differ if identifiers are chosen by users.
		KeepsCount bool
	}
	// RequestFields, OutputFields and OutputsFields are the fields of
	// EngineCoreRequest, EngineCoreOutput and EngineCoreOutputs in wire order; the
	// three are arrays on the wire (vllm/v1/engine/__init__.py).
	RequestFields, OutputFields, OutputsFields []string
	// ReadyFields are the names in the map that an engine sends first on an input
	// socket. Where there are none, the engine sends no bytes there.
	ReadyFields []string
	// Params is what parameters a request can have, and in what form
	// (vllm/sampling_params.py, vllm/pooling_params.py, vllm/tasks.py,
	// vllm/lora/request.py).
	Params struct {
		// Sampling are the fields of SamplingParams, a map by name.
		Sampling []string
		// MaxTemperature is the highest temperature, 0 where there is no bound.
		MaxTemperature float64
		// ScoreArray is true where prompt_logprob_token_ids is an array of two
		// dimensions. Elsewhere it is a list.
		ScoreArray bool
		// Pooling are the fields of PoolingParams, an array.
		Pooling []string
		// PoolingTasks are the tasks that PoolingParams can name.
		PoolingTasks []string
		// PoolingSkip is true where skip_reading_prefix_cache of PoolingParams must not
		// be None.
		PoolingSkip bool
		// LoRA are the fields of LoRARequest, an array.
		LoRA []string
	}

	complete bool // made by this package; a caller can't set it
}

// SameWire reports whether a writer of generation g and a reader of generation
// o understand each other through shared memory.
func (g *Generation) SameWire(o *Generation) bool {
	return g.DataOffset == o.DataOffset && g.Signed == o.Signed &&
		g.Counting == o.Counting && g.ItemForm == o.ItemForm
}

// Resolve returns g, or [Newest] if g is nil. It fails with [fs.ErrInvalid] for a
// Generation that a caller built by hand, since that would lack some of the facts.
func Resolve(g *Generation) (*Generation, error) {
	switch {
	case g == nil:
		return Newest(), nil
	case !g.complete:
		return nil, fmt.Errorf("%w: Generation %q is incomplete; take it from Lookup, TreatAs, Newest or Releases",
			errInvalid, g.Version)
	}
	return g, nil
}

// Newest returns the newest release.
func Newest() *Generation { return releases[len(releases)-1] }

// Releases returns all releases, oldest first.
func Releases() []*Generation { return slices.Clone(releases) }

// Lookup returns a release of vLLM, always by the same pointer. The version may be
// written as vLLM reports it: a leading "v", a local part ("+cpu") and a post
// release (".post2") are ignored. Any other version that is not in the table fails
// with [ErrUnknownVersion], development versions and release candidates included.
func Lookup(version string) (*Generation, error) {
	v := strings.TrimPrefix(version, "v")
	v, _, _ = strings.Cut(v, "+")
	if base, n, ok := strings.Cut(v, ".post"); ok {
		if _, err := strconv.ParseUint(n, 10, 32); err == nil {
			v = base
		}
	}
	for _, g := range releases {
		if g.Version == v {
			return g, nil
		}
	}
	return nil, fmt.Errorf("%w %q (newest known: %s, oldest: %s); if its wire is that of a known release, say so with TreatAs",
		ErrUnknownVersion, version, Newest().Version, releases[0].Version)
}

// TreatAs returns a copy of the known release as, under the version of an engine
// that is not in the table. The caller vouches that the engine speaks the wire of
// that release. It fails with [ErrUnknownVersion] if as is unknown.
func TreatAs(version, as string) (*Generation, error) {
	known, err := Lookup(as)
	if err != nil {
		return nil, err
	}
	g := *known
	g.Version = version
	return &g, nil
}
