package shmring

import "github.com/ringcache/ringcache/internal/mem"

// staleHeaders contains the offsets of the headers of freed chunks that are still in memory,
// in buckets of bucketSize bytes.
//
// A reader with a stale handle compares the id in the header before and after it uses the
// payload. That proves something only if the header is destroyed before the payload is, so
// allocating a chunk first kills the headers inside it: its owner may fill it in any order.
type staleHeaders map[uint64][]uint64

const bucketSize = 1 << 16

func (s staleHeaders) add(off uint64) {
	s[off/bucketSize] = append(s[off/bucketSize], off)
}

// kill overwrites the stale ids inside the new chunk buf[off:off+size].
func (s staleHeaders) kill(buf []byte, off, size uint64) {
	for b := off / bucketSize; b <= (off+size-1)/bucketSize && len(s) > 0; b++ {
		old, ok := s[b]
		if !ok {
			continue
		}
		for _, p := range old { // memory first: if it is gone, no offset is lost
			if p >= off+HeaderSize && p < off+size { // else the new header took its place
				killID(buf, p, off+size)
			}
		}
		kept := old[:0]
		for _, p := range old {
			if p < off || p >= off+size {
				kept = append(kept, p)
			}
		}
		if len(kept) == 0 {
			delete(s, b)
		} else {
			s[b] = kept
		}
	}
}

// killID overwrites the id at p, but nothing from end on, where another chunk
// may be live. A partial id changes too: its lowest byte is flipped.
func killID(buf []byte, p, end uint64) {
	if end-p >= 4 {
		mem.Store32(buf[p:], DeadID)
	} else {
		buf[p] ^= 0xff
	}
}
