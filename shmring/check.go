package shmring

import (
	"errors"
	"fmt"
)

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
		if c, err := ReadChunk(r.buf, x.address); err != nil {
			bad("id %d: %w", id, err)
		} else if c.ID != id || c.Size != x.size {
			bad("id %d, %d bytes: the header at %d says id %d, %d bytes", id, x.size, p, c.ID, c.Size)
		}
	}
	if len(r.live) > 0 && at != r.end {
		bad("the newest chunk ends at %d, the ring at %d", at, r.end)
	}
	return errors.Join(errs...)
}
