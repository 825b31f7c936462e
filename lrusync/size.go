package lrusync

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"

	"github.com/ringcache/ringcache/serde"
)

// Python is an interpreter, as far as the sizes of its numbers go
// (sys.getsizeof of a 64-bit CPython). Both ends of a mirrored pair must use the
// sizes of the engine's interpreter. The zero value is a current CPython: 3.12
// or newer, or 3.11.2 or newer.
type Python struct {
	// NarrowZero reports that 0 and False take 24 bytes, as they do up to 3.10 and
	// in 3.11.0 and 3.11.1. Elsewhere they take 28, like 1.
	NarrowZero bool
}

// ParsePython reads a version as Python reports it, such as "3.12" or "3.11.7".
// 3.9 to 3.14 are known, others are an error.
func ParsePython(version string) (Python, error) {
	var n [3]int
	parts := strings.SplitN(version, ".", 3)
	for i, p := range parts {
		v, err := strconv.ParseUint(p, 10, 16)
		if err != nil {
			return Python{}, fmt.Errorf("%w: Python version %q: want something like 3.12 or 3.11.7",
				errInvalid, version)
		}
		n[i] = int(v)
	}
	if len(parts) < 2 || n[0] != 3 || n[1] < 9 || n[1] > 14 {
		return Python{}, fmt.Errorf("%w: Python version %q: the sizes of 3.9 to 3.14 are known", errInvalid, version)
	}
	early := n[1] == 11 && len(parts) == 3 && n[2] < 2
	return Python{NarrowZero: n[1] < 11 || early}, nil
}

// Sizes of Python objects in bytes.
const (
	sizeNone     = 16
	sizeFloat    = 24
	sizeIntBase  = 24
	sizeIntDigit = 4  // of 30 bits
	digitBits    = 30 // of an int
)

// maxDepth is how deep lists are nested in an item of package serde.
const maxDepth = 64

func (p Python) intSize(magnitude uint64) int64 {
	digits := (bits.Len64(magnitude) + digitBits - 1) / digitBits
	if digits == 0 && !p.NarrowZero {
		digits = 1
	}
	return sizeIntBase + sizeIntDigit*int64(digits)
}

// ItemSize returns the bytes that vLLM accounts for an item in its LRU caches
// (MultiModalCache.get_item_size in vllm/multimodal/cache.py and cache/base.py,
// all releases): the tensors' bytes plus Python's size of the numbers that are not in
// tensors. Keys, fields and prompt updates cost nothing. It fails with
// [io/fs.ErrInvalid] for an item without elems and for an elem whose lists hold
// nothing at all; upstream fails with a TypeError.
func ItemSize(it *serde.Item, p Python) (int64, error) {
	if it == nil || len(it.Elems) == 0 {
		return 0, errUnsized
	}
	var total int64
	for i := range it.Elems {
		n, leaves, err := dataSize(it.Elems[i].Data, p, maxDepth)
		if err != nil {
			return 0, fmt.Errorf("%q: %w", it.Elems[i].Key, err)
		}
		if leaves == 0 {
			return 0, fmt.Errorf("%q: %w", it.Elems[i].Key, errUnsized)
		}
		if total, err = addSizes(total, n); err != nil {
			return 0, err
		}
	}
	return total, nil
}

func addSizes(a, b int64) (int64, error) {
	if a > math.MaxInt64-b {
		return 0, fmt.Errorf("%w: an item of more than %d bytes", errInvalid, int64(math.MaxInt64))
	}
	return a + b, nil
}

func dataSize(d any, p Python, depth int) (size int64, leaves int, err error) {
	switch d := d.(type) {
	case nil:
		return sizeNone, 1, nil
	case *serde.Tensor:
		if d == nil {
			break
		}
		n, err := d.NBytes() // whatever memory lies behind it
		return int64(n), 1, err
	case bool:
		if d {
			return p.intSize(1), 1, nil
		}
		return p.intSize(0), 1, nil
	case int:
		return dataSize(int64(d), p, depth)
	case int64:
		if d < 0 {
			return p.intSize(-uint64(d)), 1, nil
		}
		return p.intSize(uint64(d)), 1, nil
	case uint64:
		return p.intSize(d), 1, nil
	case float64:
		return sizeFloat, 1, nil
	case []any:
		if depth == 0 {
			return 0, 0, fmt.Errorf("%w: lists nested deeper than %d", errInvalid, maxDepth)
		}
		for _, e := range d {
			n, k, err := dataSize(e, p, depth-1)
			if err != nil {
				return 0, 0, err
			}
			if size, err = addSizes(size, n); err != nil {
				return 0, 0, err
			}
			leaves += k
		}
		return size, leaves, nil
	}
	return 0, 0, fmt.Errorf("%w: data of type %T", errInvalid, d)
}
