package pycompat

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"math"
	"os"
)

const (
	// SegmentEnv is the environment variable by which vLLM's processes agree on
	// the segment name (vllm/envs.py). A foreign writer sets it for the engine
	// that it launches.
	SegmentEnv = "VLLM_OBJECT_STORAGE_SHM_BUFFER_NAME"
	// segmentPrefix is the default name up to 0.14, and the start of it from 0.15.
	segmentPrefix = "VLLM_OBJECT_STORAGE_SHM_BUFFER"
)

// SegmentName returns the name that a vLLM of this generation would use for its
// segment: the environment's, else the default. From vLLM 0.15 on the default
// is new on every call; export it under [SegmentEnv], as vLLM does, so that the
// workers find it.
func (g Generation) SegmentName() string {
	if name := os.Getenv(SegmentEnv); name != "" {
		return name
	}
	if g.OrNewest().FixedName {
		return segmentPrefix
	}
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return segmentPrefix + "_" + hex.EncodeToString(b[:])
}

const (
	gib = 1 << 30
	mib = 1 << 20
)

// RingSize returns the bytes of the ring for vLLM's mm_processor_cache_gb. Both
// sides compute it on their own, in float64 and truncated, and must agree.
func RingSize(gb float64) (int, error) {
	n := gb * gib
	if math.IsNaN(n) || n < 1 || n >= math.MaxInt {
		return 0, fmt.Errorf("pycompat: mm_processor_cache_gb %v is not above 0, or more than this machine can address", gb)
	}
	return int(n), nil
}

// MaxObjectSize returns the bytes for vLLM's mm_shm_cache_max_object_size_mb.
func MaxObjectSize(mb int) (int, error) {
	if mb < 0 || mb > math.MaxInt/mib {
		return 0, fmt.Errorf("pycompat: mm_shm_cache_max_object_size_mb %d is out of range", mb)
	}
	return mb * mib, nil
}
