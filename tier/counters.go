package tier

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"
)

// kind is what happened to an object, or to a level, in counters and events.
type kind uint8

const (
	kindHit         kind = iota // the level had the object
	kindMiss                    // it did not, or could not be asked
	kindPromoted                // it came from the level into memory
	kindNotPromoted             // the level had it, and it did not get into memory
	kindWritten                 // the level took it
	kindNotWritten              // the level will not get it
	kindDeleted                 // counted for memory alone: it is in no level any more
	kindAway                    // the level is not asked any more
	kindBack                    // it is asked again
	kinds
)

var kindNames = [kinds]string{
	"hit", "miss", "promoted", "not promoted", "written", "not written", "deleted", "away", "back",
}

func (k kind) String() string { return kindNames[k] }

// cause is why something did not happen: the class of an error, since each class is a counter of its own.
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

// errQuota is the cause of what a tenant's quota, or Options.MaxBacklog, keeps from being written back.
var errQuota = fmt.Errorf("tier: the backlog of pending writes has no room: %w", ErrFull)

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
		{errCancelled, causeCancelled}, {context.Canceled, causeCancelled}, {context.DeadlineExceeded, causeCancelled},
		{errAskAgain, causePending}, {ErrPending, causePending}, {ErrNotFound, causeNotFound},
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
	// Kind is "hit", "miss", "promoted" (from the level into memory), "not promoted", "written", "not
	// written", "deleted", "away", "back"; and "dropped event" without a level.
	Kind string
	// Cause is why: "" where nothing failed, "not found", "pending", "full", "too large",
	// "in use", "unavailable", "corrupt", "quota", "cancelled" or "other".
	Cause string
	// Count is of objects, and Bytes theirs, as far as they are known.
	Count, Bytes int64
}

// report counts and tells what happens to objects and levels. Its methods never wait.
type report struct {
	names  []string // of levels, memory first
	cells  [][kinds][causes]struct{ count, bytes atomic.Int64 }
	events *events
}

// newReport returns counters that are zero, of levels whose names are given.
func newReport(names []string, events *events) *report {
	return &report{names, make([][kinds][causes]struct{ count, bytes atomic.Int64 }, len(names)), events}
}

// count counts objects. Level 0 is memory, and 1+i is Options.Lower[i].
func (r *report) count(level int, k kind, err error, objects, bytes int64) {
	cell := &r.cells[level][k][causeOf(err)]
	cell.count.Add(objects)
	cell.bytes.Add(bytes)
}

// event counts one object, or a change of a level if the key is empty, and sends an event of it.
func (r *report) event(level int, k kind, key Key, bytes int64, err error) {
	r.count(level, k, err, 1, bytes)
	cause := causeOf(err).String()
	r.events.send(Event{Level: r.names[level], Kind: k.String(), Key: key, Bytes: bytes, Cause: cause})
}

// pins counts hits and misses of memory, and reports whether there are hits only.
func (r *report) pins(placed []Placed) bool {
	var hits, bytes int64
	for i := range placed {
		if err := placed[i].Err; err != nil {
			r.count(0, kindMiss, err, 1, 0)
			continue
		}
		hits++
		bytes += placed[i].Object.Size
	}
	r.count(0, kindHit, nil, hits, bytes)
	return int(hits) == len(placed)
}

// Counters returns the counters that are not zero.
func (s *Store) Counters() []Counter {
	var out []Counter
	for level := range s.report.cells {
		for k := range kinds {
			for why := range causes {
				cell := &s.report.cells[level][k][why]
				if n := cell.count.Load(); n > 0 {
					name := s.report.names[level]
					out = append(out, Counter{name, k.String(), why.String(), n, cell.bytes.Load()})
				}
			}
		}
	}
	if n := s.report.events.dropped.Load(); n > 0 {
		out = append(out, Counter{Kind: "dropped event", Count: n})
	}
	return out
}
