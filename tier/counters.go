package tier

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"
)

// kind is what happened, in counters and events.
type kind uint8

const (
	kindHit kind = iota
	kindMiss
	kindPromoted
	kindNotPromoted
	kindWritten
	kindNotWritten
	kindDeleted
	kindNotDeleted
	kindAway
	kindBack
	kinds
)

var kindNames = [kinds]string{"hit", "miss", "promoted", "not promoted", "written", "not written", "deleted", "not deleted", "away", "back"}

func (k kind) String() string { return kindNames[k] }

// cause is why something did not happen.
type cause uint8

const (
	causeNone cause = iota
	causeNotFound
	causePending
	causeFull
	causeTooLarge
	causeInUse
	causeUnavailable
	causeCorrupt
	causeQuota
	causeCancelled
	causeOther
	causes
)

var causeNames = [causes]string{
	"", "not found", "pending", "full", "too large", "in use", "unavailable", "corrupt", "quota", "cancelled",
	"other",
}

func (c cause) String() string { return causeNames[c] }

// errQuota is the cause of what a tenant's quota, or MaxOwed, keeps from being written back.
var errQuota = fmt.Errorf("tier: too much waits to be written back: %w", ErrFull)

// causeOf sorts errors. One that matches several is the rarest of them.
func causeOf(err error) cause {
	if err == nil {
		return causeNone
	}
	for _, c := range [...]struct {
		err   error
		cause cause
	}{
		{errQuota, causeQuota}, {ErrCorrupt, causeCorrupt}, {ErrTooLarge, causeTooLarge}, {ErrFull, causeFull},
		{ErrInUse, causeInUse}, {ErrUnavailable, causeUnavailable}, {fs.ErrClosed, causeUnavailable},
		{errUnwanted, causeCancelled}, {context.Canceled, causeCancelled}, {context.DeadlineExceeded, causeCancelled},
		{errElsewhere, causePending}, {ErrPending, causePending}, {ErrNotFound, causeNotFound},
	} {
		if errors.Is(err, c.err) {
			return c.cause
		}
	}
	return causeOther
}

// Counter counts what happened since the store was opened, by level and cause. It only grows.
type Counter struct {
	// Level is the name of the level; empty for what has none.
	Level string
	// Kind is "hit", "miss", "promoted" (from the level into memory), "not promoted",
	// "written", "not written", "deleted", "not deleted", "away", "back"; and "dropped event" without a level.
	Kind string
	// Cause is why: "" where nothing failed, "not found", "pending", "full", "too large",
	// "in use", "unavailable", "corrupt", "quota", "cancelled" or "other".
	Cause string
	// Count is of objects, and Bytes theirs, as far as they are known.
	Count, Bytes int64
}

type counters struct {
	names []string // memory first
	cells [][kinds][causes]struct{ count, bytes atomic.Int64 }
}

func newCounters(names []string) *counters {
	return &counters{names, make([][kinds][causes]struct{ count, bytes atomic.Int64 }, len(names))}
}

// add counts objects. Level 0 is memory.
func (c *counters) add(level int, k kind, err error, count, bytes int64) {
	cell := &c.cells[level][k][causeOf(err)]
	cell.count.Add(count)
	cell.bytes.Add(bytes)
}

// Counters returns the counters that are not zero.
func (s *Store) Counters() []Counter {
	var out []Counter
	for level := range s.counters.cells {
		for k := range kinds {
			for why := range causes {
				cell := &s.counters.cells[level][k][why]
				if n := cell.count.Load(); n > 0 {
					out = append(out, Counter{s.counters.names[level], k.String(), why.String(), n, cell.bytes.Load()})
				}
			}
		}
	}
	if n := s.events.dropped.Load(); n > 0 {
		out = append(out, Counter{Kind: "dropped event", Count: n})
	}
	return out
}
