package segment

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"
	"time"

	"github.com/ringcache/ringcache/internal/shmfile"
	"github.com/ringcache/ringcache/pin"
	"github.com/ringcache/ringcache/shmring/memory"
)

// PinOptions choose how [Segment.Pin] registers a segment.
type PinOptions struct {
	// Require makes Pin fail if the segment could not be pinned. Otherwise Pin.Reason contains
	// the cause, and the segment can be used as before.
	Require bool
	// MaxCall is the largest number of bytes that one call of the Registrar registers; it is
	// rounded down to whole pages. 0 registers the segment in one call, which is what CUDA's
	// copies want: one copy can't span two registrations (see [Pin.Split]). Some drivers and
	// kernels limit a call.
	MaxCall int
}

// Range is a part of a segment: Length bytes of [Segment.Bytes] from Offset on.
type Range struct{ Offset, Length int }

// PinStats are the costs of a [Pin].
type PinStats struct {
	Bytes    int           // registered
	Calls    int           // of the Registrar that succeeded
	Populate time.Duration // until all pages were mapped
	Wait     time.Duration // for other processes that registered the same segment
	Register time.Duration // in the Registrar
}

// Pin describes the registration of a segment with a driver. The registration ends with the
// mapping; what Pin reports stays as it was.
type Pin struct {
	ranges []Range
	held   []pin.Registration // one for each range, until it is unregistered
	reason error
	stats  PinStats
}

// Pinned reports whether the whole segment was registered.
func (p *Pin) Pinned() bool { return p.reason == nil }

// Reason returns why the segment is not pinned, nil if it is.
func (p *Pin) Reason() error { return p.reason }

// Ranges returns the parts of the segment that were registered, one for each call, in order:
// none if the segment is not pinned.
func (p *Pin) Ranges() []Range { return slices.Clone(p.ranges) }

// Stats returns what registering took.
func (p *Pin) Stats() PinStats { return p.stats }

// Split cuts a part of the segment at the borders of the registrations. CUDA refuses a copy
// whose source spans two of them.
func (p *Pin) Split(part Range) iter.Seq[Range] {
	return func(yield func(Range) bool) {
		end := part.Offset + part.Length
		for _, r := range p.ranges {
			border := r.Offset + r.Length
			if border <= part.Offset {
				continue
			}
			if border >= end {
				break
			}
			if !yield(Range{part.Offset, border - part.Offset}) {
				return
			}
			part.Offset = border
		}
		if part.Offset < end {
			yield(Range{part.Offset, end - part.Offset})
		}
	}
}

var errNothingPinned = errors.New("the registrar registers nothing")

// Pin registers the mapping of the segment by r, so that the segment is the source of copies to a
// device without a copy on the host. It maps all pages first, waits until no other process
// registers the same segment, and registers everything or nothing. The registration ends with
// the mapping: Close, Detach, Destroy and Leave unregister before they unmap. If the driver
// refuses that, the segment stays mapped and they return the error; Close tries again.
//
// Pin fails with an error of the context, with fs.ErrClosed, fs.ErrInvalid, and, for a segment that is
// pinned already, [pin.ErrRegistered]. Every other failure is an error with
// [PinOptions].Require; otherwise it is [Pin.Reason].
//
// Pin takes time (users of CUDA report 100 ms for every GiB), and other processes of the machine
// may wait for the driver meanwhile. Only a process that issues copies itself should call Pin.
func (s *Segment) Pin(ctx context.Context, r pin.Registrar, o PinOptions) (*Pin, error) {
	if s.file == nil {
		return nil, fmt.Errorf("%w: the segment is private memory", errInvalid)
	}
	page := os.Getpagesize()
	if o.MaxCall < 0 || o.MaxCall > 0 && o.MaxCall < page {
		return nil, fmt.Errorf("%w: calls of at most %d bytes; the smallest is a page of %d",
			errInvalid, o.MaxCall, page)
	}
	if err := s.beginPin(); err != nil {
		return nil, err
	}
	p := &Pin{}
	err := p.register(ctx, s, r, o)
	if err := s.endPin(p); err != nil {
		return nil, err
	}
	if err != nil && (o.Require || ctx.Err() != nil) {
		return nil, err
	}
	p.reason = err
	return p, nil
}

// beginPin holds the mapping, for one Pin at a time.
func (s *Segment) beginPin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.holders.closed():
		return fmt.Errorf("%w: %s", errClosed, s.opt.Name)
	case s.pinning || s.pin != nil:
		return fmt.Errorf("%w: segment %s; one registration is enough for all devices", pin.ErrRegistered, s.opt.Name)
	}
	s.pinning = true
	return s.Hold() // which succeeds: nothing else closes while mu is held
}

// endPin keeps p for as long as it has registrations, also if the segment was left meanwhile:
// then the last Release unregisters and unmaps.
func (s *Segment) endPin(p *Pin) error {
	s.mu.Lock()
	s.pinning = false
	if len(p.held) > 0 {
		s.pin = p
	}
	closed := s.holders.closed()
	s.mu.Unlock()
	s.Release()
	if closed {
		return fmt.Errorf("%w: %s", errClosed, s.opt.Name)
	}
	return nil
}

// register does the work of Segment.Pin. With an error nothing is registered, unless the driver
// refused to unregister.
func (p *Pin) register(ctx context.Context, s *Segment, r pin.Registrar, o PinOptions) error {
	if err := shmfile.CheckPinnable(s.file); err != nil {
		return fmt.Errorf("segment: pinning %s: %w", s.opt.Name, err)
	}
	began := time.Now()
	if _, err := memory.Prepare(ctx, s.mem, s.path, memory.Options{Prefault: true}); err != nil {
		return err
	}
	p.stats.Populate = time.Since(began)

	began = time.Now()
	unlock, err := shmfile.WaitLock(ctx, s.file)
	if err != nil {
		return fmt.Errorf("segment: waiting for other processes that pin %s: %w", s.opt.Name, err)
	}
	defer unlock()
	p.stats.Wait = time.Since(began)

	began = time.Now()
	for part := range pieces(len(s.mem), o.MaxCall) {
		if ctx.Err() != nil {
			return errors.Join(context.Cause(ctx), p.rollBack())
		}
		held, err := r.Register(s.mem[part.Offset:part.Offset+part.Length],
			pin.RegisterOptions{ReadOnly: s.opt.ReadOnly})
		if err == nil && !held.Pinned() {
			err = errors.Join(errNothingPinned, held.Unregister())
		}
		if err != nil {
			return errors.Join(
				fmt.Errorf("segment: pinning %d bytes at %d of %s: %w", part.Length, part.Offset, s.opt.Name, err), p.rollBack())
		}
		p.ranges, p.held = append(p.ranges, part), append(p.held, held)
		p.stats.Bytes += part.Length
		p.stats.Calls++
	}
	p.stats.Register = time.Since(began)
	return nil
}

// pieces cuts size bytes into pieces of whole pages, but for the last, and of at most limit bytes. Limit 0 is none.
func pieces(size, limit int) iter.Seq[Range] {
	if limit == 0 {
		limit = size
	} else {
		limit -= limit % os.Getpagesize()
	}
	return func(yield func(Range) bool) {
		for at := 0; at < size; at += limit {
			if !yield(Range{at, min(limit, size-at)}) {
				return
			}
		}
	}
}

func (p *Pin) rollBack() error {
	err := p.unregister()
	p.ranges, p.stats = nil, PinStats{}
	return err
}

// unregister ends the registrations, the last one first. It goes on after an error and keeps
// what the driver did not let go.
func (p *Pin) unregister() (err error) {
	var kept []pin.Registration
	for _, held := range slices.Backward(p.held) {
		if e := held.Unregister(); e != nil {
			err = errors.Join(err, e)
			kept = append(kept, held)
		}
	}
	slices.Reverse(kept)
	p.held = kept
	return err
}
