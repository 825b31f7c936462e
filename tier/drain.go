package tier

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/ringcache/ringcache/internal/sizes"
)

// Drain waits until no write to a lower level is pending. If ctx ends before that, because a level is slow or
// away, it returns the keys of what is left, and the error of ctx. The next store over the memory level writes
// of it what is pinned, by the store or by a lease of a client. It does not know of the rest: what waited without a
// pin, since the backlog or a quota was full or it was stored again while a level was away, and copies for
// levels of Around. What a level refuses, as a full one, is given up meanwhile, and counted.
//
// What is stored while Drain waits is waited for, too: stop that first. A level that is new gets what is
// stored from then on, also what other levels have already. What is stored again while a level is away is not
// kept in memory for that level: what went before the level was asked for it, or was too much to note, is an
// error at the end, since the level may lack it. For that, and for what nobody stores again, there is
// `ringcache tier copy`. What no level gets, since Options.MaxBacklog or a quota had no room for its pending
// write, is an error at the end, too, which matches ErrFull.
func (s *Store) Drain(ctx context.Context) ([]Key, error) {
	if !s.life.enter() {
		return nil, errClosedStore()
	}
	defer s.life.leave()
	return s.writes.drain(ctx)
}

// drain is Drain.
func (w *writeBack) drain(ctx context.Context) ([]Key, error) {
	for {
		left, bytes, smaller, err := w.backlog()
		if smaller == nil {
			return left, err
		}
		select {
		case <-smaller:
		case <-ctx.Done():
			return left, fmt.Errorf("tier: %d objects of %s are not written: %w", len(left), sizes.Text(bytes), ctx.Err())
		}
	}
}

// backlog returns the keys of the pending writes, and the bytes that are charged for them. smaller is closed
// when one of them ends; it is nil if there is nothing to wait for, and err is the answer of Drain then. That
// counts what was missed or refused since the last such answer.
func (w *writeBack) backlog() (left []Key, bytes int64, smaller <-chan struct{}, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	left = slices.Collect(maps.Keys(w.pending))
	switch {
	case len(left) > 0 && w.stopped:
		return left, 0, nil, fmt.Errorf("tier: %d objects are not written, the store: %w", len(left), fs.ErrClosed)
	case len(left) == 0:
		return nil, 0, nil, w.incomplete()
	}
	if w.smaller == nil {
		w.smaller = make(chan struct{})
	}
	return left, w.bytes, w.smaller, nil
}

// incomplete is the answer of Drain if levels may lack what no pending write will bring. It is given once.
func (w *writeBack) incomplete() error {
	var errs []error
	if w.missed > 0 {
		errs = append(errs, fmt.Errorf("tier: %d objects that were stored again may be missing in lower levels: they had to wait, "+
			"and memory did not keep them; store them once more, or use `ringcache tier copy`", w.missed))
	}
	if w.refused > 0 {
		errs = append(errs, fmt.Errorf("tier: the backlog had no room for %d writes, whose objects may be missing in lower levels: "+
			"store them once more, or raise Options.MaxBacklog or the quotas of tenants: %w", w.refused, ErrFull))
	}
	w.missed, w.refused = 0, 0
	return errors.Join(errs...)
}
