package daemontest

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/ringcache/ringcache/encoder/wire"
)

// Ledger is what a daemon has promised to keep. Its methods may be called from any goroutine.
type Ledger struct {
	mu      sync.Mutex
	objects map[string]map[int]bool // by space
}

// Promise adds objects of a space that are committed.
func (l *Ledger) Promise(space string, numbers []int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.objects == nil {
		l.objects = map[string]map[int]bool{}
	}
	if l.objects[space] == nil {
		l.objects[space] = map[int]bool{}
	}
	for _, n := range numbers {
		l.objects[space][n] = true
	}
}

// Forget drops the promises of a space.
func (l *Ledger) Forget(space string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.objects, space)
}

// Promised lists what was promised of a space.
func (l *Ledger) Promised(space string) []int {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]int, 0, len(l.objects[space]))
	for n := range l.objects[space] {
		list = append(list, n)
	}
	slices.Sort(list)
	return list
}

// Check pins all that was promised of a space, verifies every byte, and returns the number of objects that are there, and those that are
// not. The error is that of the connection, or about what must not be.
func (l *Ledger) Check(ctx context.Context, c *wire.Client, m *wire.Mapping, space string) (found int, gone []int, err error) {
	const lease = "check of the ledger"
	list := l.Promised(space)
	for batch := range slices.Chunk(list, wire.MaxNames) {
		for len(batch) > 0 {
			items, err := c.Pin(ctx, wire.Request{Lease: lease, Space: space, Names: namesOf(batch)})
			if err != nil {
				return found, gone, err
			}
			var again []int
			for i, v := range items {
				switch v.Status {
				case wire.StatusPending:
					again = append(again, batch[i])
					continue
				case wire.StatusMiss, wire.StatusFull:
					gone = append(gone, batch[i])
					continue
				}
				if err := wrong(m, v, space, batch[i]); err != nil {
					return found, gone, &WrongError{fmt.Errorf("what was promised: %w", err)}
				}
				found++
			}
			batch = again
		}
	}
	return found, gone, c.Release(ctx, wire.Request{Leases: []string{lease}})
}

// WrongError is about an answer of a daemon that is wrong.
type WrongError struct{ err error }

func (e *WrongError) Error() string { return e.err.Error() }

// Unwrap returns what was wrong.
func (e *WrongError) Unwrap() error { return e.err }
