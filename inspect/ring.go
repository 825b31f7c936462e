package inspect

import (
	"encoding/binary"
	"math"

	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring"
)

// maxChunks bounds how many headers of a ring are followed: what a ring of many GiB has, and not what
// somebody writes who wants to keep this process busy.
const maxChunks = 1 << 20

// chunk is a chunk of a ring by its header.
type chunk struct {
	address, size int64
	id            uint32
	reads         int32
}

// laps are the chunks of a ring that its headers prove.
type laps struct {
	chunks []chunk
	cut    bool // there are more
}

// follow reads headers from the begin of the ring. Each lap begins there (docs/format.md, Ring), and ids
// count up without gaps, so the chunks of the newest lap are those whose ids go on. What lies behind is of
// the lap before. If its last id is the one in front of the first id of the newest lap, these are its chunks,
// which may have been freed.
func (x *Segment) follow() (l laps) {
	l.chunks, l.cut = x.run(0, nil)
	if len(l.chunks) == 0 || l.cut {
		return l
	}
	last := l.chunks[len(l.chunks)-1]
	if old, cut := x.run(last.address+last.size, nil); len(old) > 0 && !cut &&
		(old[len(old)-1].id+1)%shmring.IDLimit == l.chunks[0].id {
		l.chunks = append(l.chunks, old...)
	}
	return l
}

// run appends the chunks from an address on, as long as their ids go on.
func (x *Segment) run(at int64, all []chunk) (_ []chunk, cut bool) {
	for {
		c, ok := x.chunkAt(at)
		if !ok || len(all) > 0 && c.id != (all[len(all)-1].id+1)%shmring.IDLimit {
			return all, false
		}
		if len(all) == maxChunks {
			return all, true
		}
		all = append(all, c)
		at += c.size
	}
}

// chunkAt reads a header. ok is false if there is none.
func (x *Segment) chunkAt(at int64) (c chunk, ok bool) {
	var b [shmring.HeaderSize + 4]byte
	if at < 0 || x.size-at < int64(len(b)) {
		return c, false
	}
	if _, err := x.file.ReadAt(b[:], x.base+at); err != nil {
		return c, false
	}
	c = chunk{
		address: at, size: int64(int32(binary.LittleEndian.Uint32(b[4:]))), id: binary.LittleEndian.Uint32(b[:]),
		reads: int32(binary.LittleEndian.Uint32(b[8:])),
	}
	return c, c.id < shmring.IDLimit && c.size > int64(len(b)) && c.size <= x.size-at && c.reads >= 0
}

// findRing finds out where the ring of a foreign segment begins, and what generation has written it.
func (x *Segment) findRing(g *pycompat.Generation) {
	if g != nil {
		x.wire, x.base, x.size = g, int64(g.DataOffset), x.bytes-int64(g.DataOffset)
		return
	}
	best := -1
	for _, r := range pycompat.Releases() { // those with one offset have one form of headers
		if x.wire != nil && int64(r.DataOffset) == x.base {
			continue
		}
		y := &Segment{file: x.file, bytes: x.bytes, wire: r, base: int64(r.DataOffset)}
		y.size = y.bytes - y.base
		n := 0
		if chunks, _ := y.run(0, nil); len(chunks) > 0 && y.holdsVLLM(chunks[0]) {
			n = len(chunks)
		}
		if n > best {
			best, x.wire, x.base, x.size = n, r, y.base, y.size
		}
	}
	if best > 0 {
		x.wire = newestWith(x.wire.DataOffset)
	} else {
		x.wire, x.base, x.size = nil, 0, x.bytes
	}
}

// newestWith returns the newest release whose ring begins at an offset.
func newestWith(offset int) (g *pycompat.Generation) {
	for _, r := range pycompat.Releases() {
		if r.DataOffset == offset {
			g = r
		}
	}
	return g
}

// holdsVLLM reports whether the payload of a chunk begins with vLLM's metadata: a header alone is but eight
// bytes, which anything may look like.
func (x *Segment) holdsVLLM(c chunk) bool {
	const front = shmring.HeaderSize + 4
	for _, most := range []int64{64 << 10, math.MaxInt32} { // metadata are short, but for odd items
		n := min(c.size-front, most)
		b := make([]byte, n)
		if _, err := x.file.ReadAt(b, x.base+c.address+front); err != nil {
			return false
		}
		if _, _, err := serde.ParseMetadata(b); err == nil {
			return true
		}
		if n < most {
			break
		}
	}
	return false
}
