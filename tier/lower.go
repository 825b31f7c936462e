package tier

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"
	"time"

	"github.com/ringcache/ringcache/internal/loglimit"
)

// lower is a level below memory, and what the store notes about it.
type lower struct {
	Lower
	index int
	name  string
	away  atomic.Bool
	lost  atomic.Int64 // when it went away, in nanoseconds of Unix
	// A level may fail on and off for hours.
	wentLog, backLog loglimit.Limit
	slots            chan struct{} // one for each call of Get and Put
	// refusals bound what is logged of objects that the level did not take.
	refusals [causes]loglimit.Limit

	// Under the lock of the store.
	probing bool
	resting bool          // it is not written to in the background
	pause   time.Duration // the last such pause, 0 after a success
	running int           // jobs that use the level
	writers int           // workers that write to the level
	fifo    list.List     // *debt: what is to be written to the level
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

// getLevel reads from a level. callers reports whether the error of an element is that of its caller's Into, which says nothing
// about the level.
func (s *Store) getLevel(ctx context.Context, l *lower, gets []Get, callers func(i int) bool) {
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
		if !callers(i) {
			g.Err = s.judge(ctx, l, g.Err)
		}
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

// judge notes what an answer means for the level. A call that took longer than it may takes the level out of use
// at once. ErrUnavailable, and a caller that had no more time, make it suspect: if it does not answer a
// probe either, it is away. So a level that can't write, or has lost a part of its servers, can still be read.
func (s *Store) judge(ctx context.Context, l *lower, err error) error {
	switch {
	case err == nil:
	case errors.Is(err, ErrUnavailable):
		s.suspect(l)
	case errors.Is(err, fs.ErrClosed):
		s.suspect(l)
		err = fmt.Errorf("tier: level %s: %w: %w", l.name, ErrUnavailable, err)
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		err = fmt.Errorf("tier: level %s needed more than %v: %w: %w", l.name, l.Timeout, ErrUnavailable, err)
		s.loseLevel(l, err)
		s.suspect(l)
	case errors.Is(err, context.DeadlineExceeded):
		s.suspect(l)
	}
	return err
}
