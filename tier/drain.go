package tier

import (
	"context"
	"fmt"
	"io/fs"

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
	for {
		b := s.writes.backlog()
		switch {
		case len(b.left) == 0 && b.missed > 0:
			return nil, fmt.Errorf("tier: %d objects that were stored again may be missing in lower levels: "+
				"they had to wait, and memory did not keep them; store them once more, or use `ringcache tier copy`", b.missed)
		case len(b.left) == 0:
			return nil, nil
		case b.stopped:
			return b.left, fmt.Errorf("tier: %d objects are not written, the store: %w", len(b.left), fs.ErrClosed)
		}
		select {
		case <-b.smaller:
		case <-ctx.Done():
			return b.left, fmt.Errorf("tier: %d objects of %s are not written: %w",
				len(b.left), sizes.Text(b.bytes), ctx.Err())
		}
	}
}
