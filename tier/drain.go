package tier

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/ringcache/ringcache/internal/sizes"
)

// Drain waits until no write to a lower level is pending. If ctx ends before that, because a level is slow or
// away, it returns the keys of what is left, and the error of ctx: what is left stays in the memory level,
// and the next store over it writes it. What a level refuses, as a full one, is given up meanwhile, and
// counted.
//
// What is stored while Drain waits is waited for, too: stop that first. A level that is new gets what is
// stored from then on, also what other levels have already. What is stored again while a level is away is not
// kept in memory for that level: what went before the level was asked for it, or was too much to note, is an
// error at the end, since the level may lack it. For that, and for what nobody stores again, there is
// `ringcache tier copy`.
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
// counts what was missed since the last such answer.
func (w *writeBack) backlog() (left []Key, bytes int64, smaller <-chan struct{}, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	left = slices.Collect(maps.Keys(w.pending))
	switch {
	case len(left) > 0 && w.stopped:
		return left, 0, nil, fmt.Errorf("tier: %d objects are not written, the store: %w", len(left), fs.ErrClosed)
	case len(left) == 0 && w.missed > 0:
		err = fmt.Errorf("tier: %d objects that were stored again may be missing in lower levels: they had to wait, "+
			"and memory did not keep them; store them once more, or use `ringcache tier copy`", w.missed)
		w.missed = 0
		return nil, 0, nil, err
	case len(left) == 0:
		return nil, 0, nil, nil
	}
	if w.smaller == nil {
		w.smaller = make(chan struct{})
	}
	return left, w.bytes, w.smaller, nil
}
