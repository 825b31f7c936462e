package tier

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
)

// reading is one element of Get.
type reading struct {
	get     *Get
	version uint32 // as of flight
	err     error  // of the levels so far
	caller  error  // of Into, To or the context: no other level can help
	done    bool

	memory  []byte // that Into returned
	size    int64
	asked   bool
	written int64 // bytes that To got
}

// Get reads objects, each from the fastest level that has it, as [Level.Get]. A level that is away, damaged or
// too slow fails nothing that another one has. Of several calls that want the same object in memory, one level is
// read once.
//
// Into may be called a second time if a level described an object and another one had to be read. What comes
// from a lower level is written to To when it is complete: the object is on the heap until then.
//
// Err is ErrNotFound if no level has the object, with ErrUnavailable in its chain if one of them could not be
// asked.
func (s *Store) Get(ctx context.Context, gets []Get) {
	if !s.gate.enter() {
		for i := range gets {
			gets[i].Object, gets[i].Bytes, gets[i].Err = Object{}, nil, errClosedStore()
		}
		return
	}
	defer s.gate.leave()
	readings := make([]*reading, 0, len(gets))
	all := make([]reading, len(gets))
	for i := range gets {
		g := &gets[i]
		g.Object, g.Bytes, g.Err = Object{}, nil, g.Key.Validate()
		if g.Err == nil {
			all[i].get, all[i].version = g, s.missing.version(g.Key)
			readings = append(readings, &all[i])
		}
	}
	rest := s.readMemory(ctx, readings)
	flights, direct := s.board(rest)
	s.readLower(ctx, direct)
	s.readLower(ctx, s.disembark(ctx, flights))
	for _, r := range readings {
		r.finish(ctx)
	}
	s.noteMisses(readings)
}

// readMemory reads from memory, and returns what is not there.
func (s *Store) readMemory(ctx context.Context, readings []*reading) []*reading {
	if len(readings) == 0 {
		return nil
	}
	gets := make([]Get, len(readings))
	for i, r := range readings {
		gets[i].Key = r.get.Key
		if r.get.Into != nil {
			gets[i].Into = r.into
		} else if r.get.To != nil {
			gets[i].To = r
		}
	}
	s.memory.Get(ctx, gets)
	rest := readings[:0:0]
	var hits, bytes int64
	for i, r := range readings {
		switch err := gets[i].Err; {
		case err == nil:
			r.get.Object, r.get.Bytes, r.done = gets[i].Object, gets[i].Bytes, true
			hits++
			bytes += r.get.Object.Size
			continue
		case r.caller == nil && r.written > 0:
			r.caller = fmt.Errorf("tier: memory failed after %d bytes were written: %w", r.written, err)
		default:
			if r.err = err; !isNowhere(err) && !errors.Is(err, ErrPending) {
				r.err = lost(nowhere(r.get.Key), err)
			}
			s.counters.add(0, kindMiss, err, 1, 0)
			if r.caller == nil && ctx.Err() == nil {
				rest = append(rest, r)
			}
		}
	}
	s.counters.add(0, kindHit, nil, hits, bytes)
	return rest
}

// board finds or begins flights for what is to be in memory, and returns the rest, which is read for
// its caller alone. What was looked up in vain lately is in neither.
func (s *Store) board(readings []*reading) (flights map[*reading]*flight, direct []*reading) {
	if len(readings) == 0 {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var fresh []*flight
	for i, r := range readings {
		k := r.get.Key
		wanted := s.options.PromoteAfter > 0 && s.ghosts.count(k) >= s.options.PromoteAfter
		f := s.flights[k]
		miss := s.missing.get(k)
		switch {
		case f != nil && !f.deleted && !errors.Is(r.err, ErrUnavailable): // also if the flight has its place already
			s.hurry(f)
		case isNowhere(miss):
			r.err = miss
			continue
		case f == nil && wanted && miss == nil && errors.Is(r.err, ErrNotFound) && !errors.Is(r.err, ErrUnavailable) && s.mayFly(k) == nil:
			f = s.newFlight(k)
			f.place = i
			fresh = append(fresh, f)
		default:
			direct = append(direct, r)
			continue
		}
		f.waits++
		f.reads++
		f.counted = s.options.PromoteAfter > 0
		if flights == nil {
			flights = map[*reading]*flight{}
		}
		flights[r] = f
	}
	s.launch(fresh, urgent, false)
	return flights, direct
}

// disembark waits for flights and reads what they brought. It returns what they did not bring, and others may have.
func (s *Store) disembark(ctx context.Context, flights map[*reading]*flight) (direct []*reading) {
	var brought []*reading
	for r, f := range flights {
		select {
		case <-f.done:
		case <-ctx.Done():
		}
		s.mu.Lock()
		if !f.ended {
			f.reads--
			r.caller = ctx.Err()
		}
		s.unwait(f)
		ended, err := f.ended, f.err
		s.mu.Unlock()
		switch {
		case !ended:
		case err == nil:
			brought = append(brought, r)
		case isNowhere(err) && !errors.Is(err, errUnwanted):
			r.err = err
		default:
			direct = append(direct, r)
		}
	}
	direct = append(direct, s.readMemory(ctx, brought)...)
	if len(brought) > 0 {
		s.mu.Lock()
		for _, r := range brought {
			s.promoted.read(r.get.Key)
		}
		s.mu.Unlock()
	}
	return direct
}

// readLower reads from the lower levels for the caller alone.
func (s *Store) readLower(ctx context.Context, rest []*reading) {
	for _, l := range s.lower {
		if len(rest) == 0 {
			return
		}
		gets := make([]Get, len(rest))
		for i, r := range rest {
			gets[i].Key = r.get.Key
			if r.get.Into != nil {
				gets[i].Into = r.into
			}
		}
		select {
		case l.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		s.getLevel(ctx, l, gets, func(i int) bool { return rest[i].caller != nil })
		<-l.slots
		next := rest[:0:0]
		for i, r := range rest {
			r.take(gets[i])
			if !r.done && r.caller == nil && ctx.Err() == nil {
				next = append(next, r)
			}
		}
		rest = next
	}
}

// take notes the answer of a lower level.
func (r *reading) take(g Get) {
	switch {
	case g.Err == nil:
		if r.get.To != nil && r.get.Into == nil {
			if _, err := io.Copy(r.get.To, bytes.NewReader(g.Bytes)); err != nil {
				r.caller = err
				return
			}
			g.Bytes = nil
		}
		r.get.Object, r.get.Bytes, r.done = g.Object, g.Bytes, true
	case r.caller != nil:
	case errors.Is(g.Err, ErrPending):
		r.err = g.Err
	case !isNowhere(g.Err) && !errors.Is(r.err, ErrPending):
		r.err = lost(r.err, g.Err)
	}
}

// into calls the caller's Into, once for each size that levels report.
func (r *reading) into(o Object) ([]byte, error) {
	if r.asked && r.size == o.Size {
		return r.memory, nil
	}
	r.memory, r.caller = r.get.Into(o)
	r.asked, r.size = true, o.Size
	if r.caller == nil && int64(len(r.memory)) != o.Size {
		r.caller = fmt.Errorf("tier: Into returned %d bytes for object %v, which has %d: %w", len(r.memory), o.Key, o.Size, io.ErrShortBuffer)
	}
	return r.memory, r.caller
}

// Write is To of memory.
func (r *reading) Write(p []byte) (int, error) {
	n, err := r.get.To.Write(p)
	r.written += int64(n)
	if err != nil {
		r.caller = err
	}
	return n, err
}

// finish sets the error of what was not read.
func (r *reading) finish(ctx context.Context) {
	switch {
	case r.done:
	case r.caller != nil:
		r.get.Err = r.caller
	case ctx.Err() != nil:
		r.get.Err = ctx.Err()
	case r.err == nil:
		r.get.Err = nowhere(r.get.Key)
	default:
		r.get.Err = r.err
	}
}

// noteMisses remembers what no level has.
func (s *Store) noteMisses(readings []*reading) {
	for _, r := range readings {
		if err := r.get.Err; err != nil && isNowhere(err) {
			s.mu.Lock()
			if s.missing.get(r.get.Key) == nil {
				s.missing.add(r.get.Key, r.version, err)
			}
			s.mu.Unlock()
		}
	}
}
