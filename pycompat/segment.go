package pycompat

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"math"
	"os"
)

// SegmentEnv is the environment variable by which vLLM's processes agree on the
// segment name (vllm/envs.py). A foreign writer sets it for the engine that it
// launches.
const SegmentEnv = "VLLM_OBJECT_STORAGE_SHM_BUFFER_NAME"

// segmentPrefix is the default name up to 0.14, and its start from 0.15 on.
const segmentPrefix = "VLLM_OBJECT_STORAGE_SHM_BUFFER"

// SegmentName returns the name that a vLLM of this generation would give its
// segment: the value of [SegmentEnv], or else the default. From vLLM 0.15 on the
// default is new on every call; export it under [SegmentEnv], as vLLM does, so
// that the workers find the segment.
func (g *Generation) SegmentName() string {
	if name := os.Getenv(SegmentEnv); name != "" {
		return name
	}
	if g.FixedName {
		return segmentPrefix
	}
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return segmentPrefix + "_" + hex.EncodeToString(b[:])
}

const gib = 1 << 30

// RingSize returns the size of the ring in bytes for vLLM's mm_processor_cache_gb.
// Each side computes it on its own, in float64 and truncated, and the two must
// agree. A size that is not above 0, or that this machine can't address, fails with
// [fs.ErrInvalid].
func RingSize(gb float64) (int, error) {
	n := gb * gib
	if math.IsNaN(n) || n < 1 || n >= math.MaxInt {
		return 0, fmt.Errorf("%w: mm_processor_cache_gb %v is not above 0, or more than this machine can address",
			errInvalid, gb)
	}
	return int(n), nil
}
