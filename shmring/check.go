package shmring

import (
	"errors"
	"fmt"

	"github.com/ringcache/ringcache/internal/fault"
)

// readGuarded is ReadChunk for memory that may be gone: CheckStructure then still verifies
// the Go state.
func readGuarded(buf []byte, address uint64) (c Chunk, err error) {
	err = fault.Guard(func() error {
		c, err = ReadChunk(buf, address)
		return err
	})
	return c, err
}

// CheckStructure verifies everything that must hold between calls and returns
// every violation it finds, joined. It also compares the headers in memory, so
// it fails if a live chunk's header was overwritten.
func (r *Ring) CheckStructure() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("ring: "+format, args...)) }

	n := uint64(len(r.buf))
	window := int((int64(r.idEnd) - int64(r.idStart) + IDLimit) % IDLimit)
	if window != len(r.live) {
		bad("%d live chunks, but the id window %d..%d has %d", len(r.live), r.idStart, r.idEnd, window)
	}
	if len(r.live) == 0 && (r.start != 0 || r.end != 0) {
		bad("empty, but start %d and end %d are not 0", r.start, r.end)
	}
	if r.end < r.start || r.end-r.start > n {
		bad("start %d, end %d: more than %d bytes in use", r.start, r.end, n)
	}
	if r.start >= n {
		bad("start %d is not below the size %d", r.start, n)
	}

	at := r.start
	for i, id := 0, r.idStart; i < window; i, id = i+1, nextID(id) {
		x, ok := r.live[id]
		if !ok {
			bad("id %d is in the window but not live", id)
			continue
		}
		p := x.address % n
		if (p+uint64(r.opt.DataOffset))%uint64(r.opt.Align) != 0 {
			bad("id %d at offset %d is not aligned to %d", id, p, r.opt.Align)
		}
		if p+uint64(x.size) > n {
			bad("id %d at offset %d with %d bytes crosses the end %d", id, p, x.size, n)
			continue
		}
		at += (p + n - at%n) % n
		at += uint64(x.size)
		if at > r.end {
			bad("id %d ends at %d, behind the ring's end %d", id, at, r.end)
		}
		if c, err := readGuarded(r.buf, x.address); err != nil {
			bad("id %d: %w", id, err)
		} else if c.ID != id || c.Size != x.size {
			bad("id %d, %d bytes: the header at %d has id %d, %d bytes", id, x.size, p, c.ID, c.Size)
		}
	}
	if len(r.live) > 0 && at != r.end {
		bad("the newest chunk ends at %d, the ring at %d", at, r.end)
	}
	return errors.Join(errs...)
}

// CheckStructure verifies everything that must hold between calls and returns
// every violation it finds, joined. It also compares the headers in memory.
func (p *Pool) CheckStructure() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("pool: "+format, args...)) }

	listed := map[*block]bool{}
	for i, h := range p.holes.head {
		if (h != nil) != (p.holes.some[i/64]>>(i%64)&1 == 1) {
			bad("list %d and its bit disagree", i)
		}
		for b := h; b != nil; b = b.bin().next {
			if listed[b] || !b.free() || binOf(b.len) != i {
				bad("hole at %d with %d bytes is in list %d, free %v", b.off, b.len, i, b.free())
				break
			}
			listed[b] = true
		}
	}
	at, used, live, holes := p.opt.first(), uint64(0), 0, 0
	var prev *block
	for b := p.first; b != nil; prev, b = b, b.next {
		if b.off != at || b.len == 0 || b.len%p.opt.unit() != 0 || b.prev != prev {
			bad("block at %d with %d bytes, want it at %d", b.off, b.len, at)
			break
		}
		at += b.len
		if b.free() {
			holes++
			if prev != nil && prev.free() {
				bad("two holes meet at %d", b.off)
			}
			if !listed[b] {
				bad("hole at %d is in no list", b.off)
			}
			if l := p.holes.largest; l != nil && l.len < b.len {
				bad("the recorded largest hole has %d bytes, the one at %d has %d", l.len, b.off, b.len)
			}
			continue
		}
		live++
		used += b.len
		if p.live[b.id] != b {
			bad("chunk %d at %d is not live", b.id, b.off)
		}
		if c, err := readGuarded(p.buf, b.off); err != nil {
			bad("chunk %d: %w", b.id, err)
		} else if c.ID != b.id && c.ID != DeadID && c.ID != GoneID || c.Size != int(b.size) || uint64(b.size) > b.len {
			bad("chunk %d at %d, %d of %d bytes: the header has id %d, %d bytes", b.id, b.off, b.size, b.len,
				c.ID, c.Size)
		}
	}
	if l := p.holes.largest; l != nil && !listed[l] {
		bad("the largest hole, at %d, is in no list", l.off)
	}
	if want := p.opt.first() + p.room(); p.first != nil && at != want {
		bad("blocks end at %d, want %d", at, want)
	}
	if live != len(p.live) || used != p.used || holes != p.holes.count || holes != len(listed) {
		bad("%d chunks of %d bytes and %d holes (%d listed), want %d, %d and %d", live, used, holes, len(listed),
			len(p.live), p.used, p.holes.count)
	}
	return errors.Join(errs...)
}
