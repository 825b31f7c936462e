package system

import (
	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/model"
)

// Family is a group of operations that two systems can be compared by.
type Family struct {
	Name     string // "ring"
	Generate func(Case) fuzz.Generator
	// Model returns the reference model. With VLLM in the case it does as vLLM does, else as this
	// module does where the two differ on purpose.
	Model func(Case) fuzz.System
}

// Case is what two systems are compared in.
type Case struct {
	Release model.Release
	// VLLM: one of them is vLLM, so that sequences have only what it has. Without, one of them is
	// this module.
	VLLM bool
	// Ours: one of them is this module, or a system that has its agent's habits.
	Ours bool
	// GrowAnew is the rule of the cachetools below a real vLLM's LRU caches (docs/agent.md, lru.new).
	GrowAnew bool
}
