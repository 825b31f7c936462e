package system

import (
	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/generate"
	"github.com/ringcache/ringcache/fuzz/model"
)

// Family is a group of operations that two systems can be compared by.
type Family struct {
	Name     string // "ring"
	Generate func(Case) fuzz.Generator
	// Model returns the reference model: of vLLM with Case.VLLM, and else of this module where
	// the two differ on purpose.
	Model func(Case) fuzz.System
}

// Case is what two systems are compared in.
type Case struct {
	Release model.Release
	// VLLM: one of them is vLLM, so that sequences contain only what it has.
	VLLM bool
	// Ours: one of them is this module, or a system that does as it does.
	Ours bool
	// GrowAnew is the rule of the cachetools below a real vLLM's LRU caches (docs/agent.md,
	// lru.new).
	GrowAnew bool
	// Python is the version by which sizes of numbers differ, "3.11" if empty.
	Python string
}

// Families returns all families, by the order of their names in `ringcache fuzz --help`.
func Families() []Family {
	return []Family{ring, store, lru, pair}
}

var ring = Family{
	Name: "ring",
	Generate: func(c Case) fuzz.Generator {
		// Ours destroys the ids of freed chunks that come to lie inside a new one (docs/format.md), and
		// vLLM reads any bytes as a header.
		return generate.Ring(generate.RingOptions{Generation: c.Release.Version, LiveHeaders: true})
	},
	Model: func(c Case) fuzz.System { return model.NewRing(c.Release) },
}

var store = Family{
	Name: "store",
	Generate: func(c Case) fuzz.Generator {
		// Readers of vLLM always count, so they need a lock.
		return generate.Store(generate.StoreOptions{Generation: c.Release.Version, Lock: "readers", Segment: "objects"})
	},
	Model: func(c Case) fuzz.System {
		return model.NewStore(c.Release, model.StoreOptions{RefuseStaleTouch: c.Ours})
	},
}

var lru = Family{
	Name: "lru",
	Generate: func(c Case) fuzz.Generator {
		o := generate.LRUOptions{Release: c.Release, Upstream: c.VLLM}
		if c.VLLM {
			o.GrowAnew = []bool{c.GrowAnew}
		}
		return generate.LRU(o)
	},
	Model: func(c Case) fuzz.System { return model.NewLRU(c.Release, model.CacheOptions{Upstream: c.VLLM}) },
}

var pair = Family{
	Name: "pair",
	Generate: func(c Case) fuzz.Generator {
		return generate.Pair(generate.PairOptions{Release: c.Release, Upstream: c.VLLM, Python: c.Python})
	},
	Model: func(c Case) fuzz.System { return model.NewPair(c.Release, model.CacheOptions{Upstream: c.VLLM}) },
}
