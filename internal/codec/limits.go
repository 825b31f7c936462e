package codec

import (
	"github.com/ringcache/ringcache/internal/msgpackguard"
	"github.com/ringcache/ringcache/internal/shapes"
)

const (
	// MaxDepth is how deep lists and maps may be nested in a value.
	MaxDepth = 64
	// MaxDims is the largest number of dimensions of an array.
	MaxDims = shapes.MaxDims
)

// DefaultThreshold is vLLM's VLLM_MSGPACK_ZERO_COPY_THRESHOLD, in bytes.
const DefaultThreshold = 256

// Threshold returns the size in bytes from which on an array gets a frame of its own,
// by an InlineThreshold of serde.Options.
func Threshold(inline int) int {
	if inline == 0 {
		return DefaultThreshold
	}
	return max(inline, 0)
}

// guardLimits leaves room for the levels around a value.
var guardLimits = msgpackguard.Limits{Depth: MaxDepth + 16}

// What values take in memory, about: a byte of a hostile message must not stand
// for hundreds.
const (
	CostValue = 24
	CostEntry = 64  // of a map
	CostMap   = 300 // with entries
	costError = 300

	// A message may take a multiple of its own length, and something besides.
	// What vLLM sends stays far below.
	costFactor = 16
	costBase   = 4 << 20
)

// Charge accounts for n bytes of memory that a message makes us take.
func (d *Decoder) Charge(what string, n int) error {
	d.cost += n
	if d.cost > costFactor*len(d.doc)+costBase {
		return d.Corrupt(what, "values worth their bytes", "too many small ones")
	}
	return nil
}
