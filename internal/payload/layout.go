// Package payload contains how shmstore lays out a payload in its chunk: where the payload begins, the
// description beside it, and what an adopter verifies. Package shmstore writes by these rules; package
// objstore/check applies them to segments that a store has open.
package payload

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/shmring"
)

const (
	// Lead is the bytes between the begin of a chunk and its payload, if nobody
	// counts its reads: the chunk's header, and 56 bytes of 0.
	Lead = 64
	// minDescriptionOffset is the bytes of the payload that no checksum covers.
	minDescriptionOffset = 4

	// UseBusy and UseRetired are bits of the use word of an entry: someone may need the object; its key means another
	// object by now, or none. The low 32 bits are a count of the owner of payloads.
	UseBusy    = 1 << 63
	UseRetired = 1 << 62

	// MinAlign and MaxAlign bound the alignment of payloads, a power of two.
	MinAlign = 64
	MaxAlign = 4096
)

// MinOffset returns where, behind the header of a chunk, its description begins at least. plain reports
// that nobody counts the reads of the payload.
func MinOffset(plain bool) int {
	if plain {
		return Lead - shmring.HeaderSize
	}
	return minDescriptionOffset
}

// ValidAlign reports whether payloads can have an alignment.
func ValidAlign(a int) bool { return a >= MinAlign && a <= MaxAlign && a&(a-1) == 0 }

// PoolOptions returns the options of the allocator. A chunk is in front of its payload by so
// much that the payload is aligned.
func PoolOptions(dataOffset, align int, plain bool) shmring.PoolOptions {
	p := shmring.PoolOptions{DataOffset: dataOffset, Granule: align}
	if plain {
		p.Lead = Lead
	}
	return p
}

// Format is what a sidecar contains as the format of payloads. The alignment is part of it, since whoever
// adopts the segment needs it.
func Format(format string, align int) string {
	if align == MinAlign {
		return format
	}
	return fmt.Sprintf("%s@%d", format, align)
}

// Pool returns the pool that a sidecar describes, empty and over the ring, for its rules of where
// chunks can be.
func Pool(ring []byte, o sidecar.Options, plain bool) *shmring.Pool {
	align := MinAlign
	if at := strings.LastIndexByte(o.Generation, '@'); at >= 0 && plain {
		if a, err := strconv.Atoi(o.Generation[at+1:]); err == nil && ValidAlign(a) { // else the format is another's
			align = a
		}
	}
	return shmring.NewPool(ring, PoolOptions(o.DataOffset, align, plain))
}
