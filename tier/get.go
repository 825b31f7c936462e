package tier

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// reading is one element of Get.
type reading struct {
	get     *Get
	version uint32    // of the key in the negative cache
	began   time.Time // the lookup in lower levels for this reading alone; zero before
	err     error     // of the levels so far
	caller  error     // of Into, To or the context: no other level can help
	done    bool

	memory  []byte // that Into returned
	size    int64
	asked   bool
	written int64 // bytes that To got
}

// Get reads objects, each from the fastest level that has it, as [Level.Get]. A level that is away, damaged
// or too slow fails nothing that another one has. Of several calls that fetch the same object, one level is
// read once.
//
// Into may be called a second time if a level described an object and another one had to be read. What comes
// from a lower level is written to To when it is complete: the object is on the heap until then.
//
// Err is ErrNotFound if no level has the object, with ErrUnavailable in its chain if one of them could not be
// asked.
func (s *Store) Get(ctx context.Context, gets []Get) {
	if !s.life.enter() {
		failGets(gets, errClosedStore())
		return
	}
	defer s.life.leave()
	readings := make([]*reading, 0, len(gets))
	all := make([]reading, len(gets))
	for i := range gets {
		g := &gets[i]
		g.Object, g.Bytes, g.Err = Object{}, nil, g.Key.Validate()
		if g.Err == nil {
			all[i].get, all[i].version = g, s.fetcher.negative.version(g.Key)
			readings = append(readings, &all[i])
		}
	}
	rest := s.readMemory(ctx, readings)
	joined, direct := s.fetcher.join(rest)
	s.readLower(ctx, direct)
	s.readLower(ctx, s.readFetched(ctx, joined))
	for _, r := range readings {
		r.setError(ctx)
	}
	s.rememberMisses(readings)
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
			if r.err = err; !isPlainMiss(err) && !errors.Is(err, ErrPending) {
				r.err = addFailure(errNowhere(r.get.Key), err)
			}
			s.report.count(0, kindMiss, err, 1, 0)
			if r.caller == nil && ctx.Err() == nil {
				rest = append(rest, r)
			}
		}
	}
	s.report.count(0, kindHit, nil, hits, bytes)
	return rest
}

// join joins or begins fetches of what is to be in memory, and returns the rest, which is read for its caller
// alone. What was looked up in vain lately is in neither.
func (f *fetcher) join(readings []*reading) (joined map[*reading]*fetch, direct []*reading) {
	if len(readings) == 0 {
		return nil, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	joined = map[*reading]*fetch{}
	var begun []*fetch
	for i, r := range readings {
		k := r.get.Key
		promote := f.options.PromoteAfter > 0 && f.ghosts.count(k) >= f.options.PromoteAfter
		x := f.fetches[k]
		miss := f.negative.get(k)
		switch {
		case x != nil && !x.deleted && !errors.Is(r.err, ErrUnavailable): // join it
			f.makeUrgent(x)
		case miss != nil:
			r.err = miss
			continue
		case x == nil && promote && miss == nil &&
			errors.Is(r.err, ErrNotFound) && !errors.Is(r.err, ErrUnavailable) && f.admit(k) == nil:
			x = f.newFetch(k)
			x.order = i
			begun = append(begun, x)
		default:
			direct = append(direct, r)
			continue
		}
		x.waiters++
		x.readers++
		x.counted = f.options.PromoteAfter > 0
		joined[r] = x
	}
	f.enqueueLookup(begun, nil, urgent, false)
	return joined, direct
}

// waitFinished waits until a fetch that join returned is finished, or ctx ends, and ends the interest of its caller.
// It reports whether the fetch is finished.
func (f *fetcher) waitFinished(ctx context.Context, x *fetch) (finished bool, err error) {
	select {
	case <-x.done:
	case <-ctx.Done():
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !x.finished {
		x.readers--
		err = ctx.Err()
	} else {
		err = x.err
	}
	finished = x.finished
	f.removeWaiter(x)
	return finished, err
}

// readFetched waits for fetches and reads what is in memory then. It returns what they did not fetch, and
// other levels may have.
func (s *Store) readFetched(ctx context.Context, joined map[*reading]*fetch) (direct []*reading) {
	var fetched []*reading
	for r, x := range joined {
		switch finished, err := s.fetcher.waitFinished(ctx, x); {
		case !finished:
			r.caller = err
		case err == nil:
			fetched = append(fetched, r)
		case isPlainMiss(err):
			r.err = err
		default:
			direct = append(direct, r)
		}
	}
	direct = append(direct, s.readMemory(ctx, fetched)...)
	if len(fetched) > 0 {
		s.fetcher.removeReaders(fetched)
	}
	return direct
}

// removeReaders notes that calls of Get have read what was fetched.
func (f *fetcher) removeReaders(fetched []*reading) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range fetched {
		f.promoted.removeReader(r.get.Key)
	}
}

// readLower reads from the lower levels for the caller alone.
func (s *Store) readLower(ctx context.Context, rest []*reading) {
	began := time.Now()
	for _, r := range rest {
		r.began = began
	}
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
		l.get(ctx, gets, func(i int) bool { return rest[i].caller != nil })
		<-l.slots
		next := rest[:0:0]
		for i, r := range rest {
			r.setAnswer(gets[i])
			if !r.done && r.caller == nil && ctx.Err() == nil {
				next = append(next, r)
			}
		}
		rest = next
	}
}

// setAnswer notes the answer of a lower level.
func (r *reading) setAnswer(g Get) {
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
	case !isPlainMiss(g.Err) && !errors.Is(r.err, ErrPending):
		r.err = addFailure(r.err, g.Err)
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
		r.caller = fmt.Errorf("tier: Into returned %d bytes for object %v, which has %d: %w",
			len(r.memory), o.Key, o.Size, io.ErrShortBuffer)
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

// setError sets the error of what was not read.
func (r *reading) setError(ctx context.Context) {
	switch {
	case r.done:
	case r.caller != nil:
		r.get.Err = r.caller
	case ctx.Err() != nil:
		r.get.Err = ctx.Err()
	case r.err == nil:
		r.get.Err = errNowhere(r.get.Key)
	default:
		r.get.Err = r.err
	}
}

// rememberMisses adds what no level has to the negative cache, as far as lower levels were read for the readings alone:
// the miss of a fetch is there already.
func (s *Store) rememberMisses(readings []*reading) {
	for _, r := range readings {
		if err := r.get.Err; err != nil && isPlainMiss(err) && !r.began.IsZero() {
			s.fetcher.negative.add(r.get.Key, r.version, r.began, err)
		}
	}
}
