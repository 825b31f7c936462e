package tier

import (
	"context"
	"fmt"
	"io/fs"

	"github.com/ringcache/ringcache/internal/sizes"
)

// Drain waits until everything that is owed to lower levels is written. If ctx ends before that, because a level is
// slow or away, it returns the keys of what is left, and the error of ctx: what is left stays in the memory level,
// and the next store over it writes it. What a level refuses, as a full one, is given up meanwhile, and counted.
//
// What is stored while Drain waits is waited for, too: stop that first. A level that is new gets what is
// stored from then on, also what other levels have already. What is stored again while a level is away is not
// kept in memory for that level: what went before the level was asked for it, or was too much to note, is an
// error at the end, since the level may lack it. For that, and for what nobody stores again, there is
// `ringcache tier copy`.
func (s *Store) Drain(ctx context.Context) ([]Key, error) {
	if !s.gate.enter() {
		return nil, fmt.Errorf("tier: the store: %w", fs.ErrClosed)
	}
	defer s.gate.leave()
	for {
		s.mu.Lock()
		if len(s.owed.debts) == 0 {
			missed := s.owed.missed
			s.owed.missed = 0
			s.mu.Unlock()
			if missed > 0 {
				return nil, fmt.Errorf("tier: %d objects that were stored again may be missing in lower levels: they had to wait, and memory did not keep them; "+
					"store them once more, or use `ringcache tier copy`", missed)
			}
			return nil, nil
		}
		left := make([]Key, 0, len(s.owed.debts))
		for k := range s.owed.debts {
			left = append(left, k)
		}
		bytes, stopping := s.owed.bytes, s.stopping
		if s.settled == nil {
			s.settled = make(chan struct{})
		}
		settled := s.settled
		s.mu.Unlock()
		if stopping {
			return left, fmt.Errorf("tier: %d objects are not written, the store: %w", len(left), fs.ErrClosed)
		}
		select {
		case <-settled:
		case <-ctx.Done():
			return left, fmt.Errorf("tier: %d objects of %s are not written: %w", len(left), sizes.Text(bytes), ctx.Err())
		}
	}
}
