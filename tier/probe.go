package tier

import (
	"context"
	"errors"
	"time"
)

const (
	firstProbe = 50 * time.Millisecond // after a probe, or after a write that failed
	lastProbe  = 5 * time.Second       // between two of them, at the most
)

// probeKey is of an object that nobody has.
var probeKey = Key{Space: "ringcache", Name: "probe"}

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

// probe asks a level, and again until it answers. There is one caller at a time, so that a level that is away keeps
// nobody else waiting.
func (s *Store) probe(l *lower) {
	for pause := firstProbe; ; pause = min(2*pause, lastProbe) {
		limited, cancel := context.WithTimeout(s.ctx, l.Timeout)
		err := l.Level.Stat(limited, []Key{probeKey})[0].Err
		cancel()
		switch {
		case s.ctx.Err() != nil:
			return
		case err == nil, errors.Is(err, ErrNotFound) && !errors.Is(err, ErrUnavailable), errors.Is(err, ErrPending):
			s.findLevel(l)
			pause = firstProbe
		default:
			s.loseLevel(l, err)
		}
		select {
		case <-s.ctx.Done():
			return
		case <-time.After(pause): // also after an answer: a level that fails now and then is not asked all the time
		}
		if s.endProbe(l) {
			return
		}
	}
}

// endProbe reports whether the level is in use, and then lets another probe begin.
func (s *Store) endProbe(l *lower) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.probing = l.away.Load()
	return !l.probing
}

// loseLevel takes a level out of use. Whoever calls it has it probed.
func (s *Store) loseLevel(l *lower, cause error) {
	if l.away.Swap(true) {
		return
	}
	l.lost.Store(time.Now().UnixNano())
	l.wentLog.Warn(s.options.Logger, "tier: a level is away", "level", l.name, "error", cause)
	s.counters.add(1+l.index, kindAway, cause, 1, 0)
	s.events.send(Event{Level: l.name, Kind: kindAway.String(), Cause: causeOf(cause).String()})
}

// findLevel takes a level into use again.
func (s *Store) findLevel(l *lower) {
	if !l.away.Swap(false) {
		return
	}
	away := time.Since(time.Unix(0, l.lost.Load())).Round(time.Millisecond)
	l.backLog.Info(s.options.Logger, "tier: a level is back", "level", l.name, "after", away.String())
	s.counters.add(1+l.index, kindBack, nil, 1, 0)
	s.events.send(Event{Level: l.name, Kind: kindBack.String()})
	s.mu.Lock()
	defer s.mu.Unlock()
	l.pause = 0
	s.wake.Broadcast()
}

// pauseWrites keeps workers from a level that did not take what it was to write. The lock is held.
func (s *Store) pauseWrites(l *lower) {
	if l.resting || s.stopping {
		return
	}
	l.resting = true
	l.pause = min(max(2*l.pause, firstProbe), lastProbe)
	pause := l.pause
	s.work.Go(func() {
		select {
		case <-s.ctx.Done():
		case <-time.After(pause):
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		l.resting = false
		s.wake.Broadcast()
	})
}
