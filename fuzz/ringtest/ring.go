package ringtest

import (
	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/ringrules"
)

// The types are those of package ringrules, which programs use, too.
type (
	// Ring is the allocator to be tested: five methods.
	Ring = ringrules.Ring
	// New makes an empty ring.
	New = ringrules.New
	// State is the position of a ring.
	State = ringrules.State
	// Clearer is a Ring that can free everything at once.
	Clearer = ringrules.Clearer
	// Publisher is a Ring whose headers are complete only after the payload.
	Publisher = ringrules.Publisher
	// StoreObserver is a Ring that reports each of its stores, for [Crash].
	StoreObserver = ringrules.StoreObserver
	// Recover makes a ring from the memory that a crash left.
	Recover = ringrules.Recover
	// Options configure a test. The zero value checks what holds for any correct ring.
	Options = ringrules.Options
	// Step is an operation that a ring performed, as an invariant gets it.
	Step = ringrules.Step
	// Chunk is a chunk as the test recorded it.
	Chunk = ringrules.Chunk
)

// Invariants returns what is checked after each operation, in this order. fifo, placement and
// stale-at-once are off unless [Options] switches them on.
func Invariants() []fuzz.Invariant[*Step] { return ringrules.Invariants() }
