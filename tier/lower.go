package tier

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"
	"time"
)

// lower is a level below memory, and what the store notes about it.
type lower struct {
	Lower
	index int
	name  string
	away  atomic.Bool

	// Under the lock of the store.
	probing bool
	fifo    list.List // *debt: what is to be written to the level
}

// statLevel asks a level about keys. ctxErr is the error of the caller's context, if that ended.
func (s *Store) statLevel(ctx context.Context, l *lower, keys []Key) (found []Found, ctxErr error) {
	if l.away.Load() {
		found = make([]Found, len(keys))
		for i := range found {
			found[i].Err = errAway(l)
		}
		s.counters.add(1+l.index, kindMiss, ErrUnavailable, int64(len(keys)), 0)
		return found, nil
	}
	limited, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	found = l.Level.Stat(limited, keys)
	for i := range found {
		found[i].Err = s.judge(ctx, l, found[i].Err)
		if err := found[i].Err; err != nil {
			s.counters.add(1+l.index, kindMiss, err, 1, 0)
		}
	}
	return found, ctx.Err()
}

// getLevel reads from a level.
func (s *Store) getLevel(ctx context.Context, l *lower, gets []Get) {
	if l.away.Load() {
		for i := range gets {
			gets[i].Err = errAway(l)
		}
		s.counters.add(1+l.index, kindMiss, ErrUnavailable, int64(len(gets)), 0)
		return
	}
	limited, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	l.Level.Get(limited, gets)
	for i := range gets {
		g := &gets[i]
		g.Err = s.judge(ctx, l, g.Err)
		if g.Err == nil && g.Object.Key != g.Key {
			g.Err = fmt.Errorf("tier: level %s answered for object %v with %v: %w", l.name, g.Key, g.Object.Key, ErrCorrupt)
		}
		if g.Err == nil {
			s.counters.add(1+l.index, kindHit, nil, 1, g.Object.Size)
			continue
		}
		s.counters.add(1+l.index, kindMiss, g.Err, 1, 0)
		if errors.Is(g.Err, ErrCorrupt) {
			s.events.send(Event{Level: l.name, Kind: kindMiss.String(), Key: g.Key, Cause: causeCorrupt.String()})
		}
	}
}

// putLevel writes to a level.
func (s *Store) putLevel(ctx context.Context, l *lower, puts []Put) {
	if l.away.Load() {
		for i := range puts {
			puts[i].Err = errAway(l)
		}
		return
	}
	limited, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	l.Level.Put(limited, puts)
	for i := range puts {
		puts[i].Err = s.judge(ctx, l, puts[i].Err)
	}
}

// wrote counts what a level took, or did not. What it will be asked to take again is neither.
func (s *Store) wrote(l *lower, o Object, err error) {
	k := kindWritten
	if err != nil {
		k = kindNotWritten
	}
	s.counters.add(1+l.index, k, err, 1, o.Size)
	s.events.send(Event{Level: l.name, Kind: k.String(), Key: o.Key, Bytes: o.Size, Cause: causeOf(err).String()})
}

// deleteLevel deletes from a level.
func (s *Store) deleteLevel(ctx context.Context, l *lower, keys []Key) []error {
	errs := make([]error, len(keys))
	if l.away.Load() {
		for i := range errs {
			errs[i] = errAway(l)
		}
		return errs
	}
	limited, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	for i, err := range l.Level.Delete(limited, keys) {
		errs[i] = s.judge(ctx, l, err)
	}
	return errs
}

func errAway(l *lower) error {
	return fmt.Errorf("tier: level %s is away: %w", l.name, ErrUnavailable)
}

// judge notes what an answer means for the level: ErrUnavailable, and a call that took longer than it may, take
// it out of use. A caller that had no more time makes the level suspect: it is asked in the background.
func (s *Store) judge(ctx context.Context, l *lower, err error) error {
	switch {
	case err == nil:
	case errors.Is(err, ErrUnavailable), errors.Is(err, fs.ErrClosed):
		s.loseLevel(l, err)
		if !errors.Is(err, ErrUnavailable) {
			err = fmt.Errorf("tier: level %s: %w: %w", l.name, ErrUnavailable, err)
		}
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		err = fmt.Errorf("tier: level %s needed more than %v: %w: %w", l.name, l.Timeout, ErrUnavailable, err)
		s.loseLevel(l, err)
	case errors.Is(err, context.DeadlineExceeded):
		s.suspect(l)
	}
	return err
}

// loseLevel takes a level out of use until a probe is answered.
func (s *Store) loseLevel(l *lower, cause error) {
	if l.away.Swap(true) {
		return
	}
	s.options.Logger.Warn("tier: a level is away", "level", l.name, "error", cause)
	s.counters.add(1+l.index, kindAway, cause, 1, 0)
	s.events.send(Event{Level: l.name, Kind: kindAway.String(), Cause: causeOf(cause).String()})
	s.suspect(l)
}

// suspect begins to probe a level, unless somebody does already.
func (s *Store) suspect(l *lower) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.probing || s.stopping {
		return
	}
	l.probing = true
	s.work.Go(func() { s.probe(l) })
}

const (
	firstProbe = 50 * time.Millisecond // after a level was lost
	lastProbe  = 5 * time.Second       // between two probes, at the most
)

// probeKey is of an object that nobody has.
var probeKey = Key{Space: "ringcache", Name: "probe"}

// probe asks a level until it answers. There is one caller at a time, so that a level that is away keeps nobody
// else waiting.
func (s *Store) probe(l *lower) {
	pause := firstProbe
	for {
		if l.away.Load() {
			select {
			case <-s.ctx.Done():
				return
			case <-time.After(pause):
			}
			pause = min(2*pause, lastProbe)
		}
		limited, cancel := context.WithTimeout(s.ctx, l.Timeout)
		err := l.Level.Stat(limited, []Key{probeKey})[0].Err
		cancel()
		if s.ctx.Err() != nil {
			return
		}
		if err == nil || errors.Is(err, ErrNotFound) && !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrPending) {
			break
		}
		if !l.away.Swap(true) {
			s.options.Logger.Warn("tier: a level is away", "level", l.name, "error", err)
			s.counters.add(1+l.index, kindAway, err, 1, 0)
			s.events.send(Event{Level: l.name, Kind: kindAway.String(), Cause: causeOf(err).String()})
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l.probing = false
	if l.away.Swap(false) {
		s.options.Logger.Info("tier: a level is back", "level", l.name)
		s.counters.add(1+l.index, kindBack, nil, 1, 0)
		s.events.send(Event{Level: l.name, Kind: kindBack.String()})
		s.wake.Broadcast()
	}
}
