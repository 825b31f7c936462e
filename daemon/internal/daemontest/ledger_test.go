package daemontest

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/ringcache/ringcache/daemon/client"
	"github.com/ringcache/ringcache/daemon/wire"
)

// Ledger is what a daemon has to keep. Its methods may be called from any goroutine.
type Ledger struct {
	mu      sync.Mutex
	objects map[string]map[int]bool // by space
}

// Add adds objects of a space that are committed.
func (l *Ledger) Add(space string, numbers []int) {
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

// Forget drops a space.
func (l *Ledger) Forget(space string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.objects, space)
}

// Objects lists the objects of a space.
func (l *Ledger) Objects(space string) []int {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]int, 0, len(l.objects[space]))
	for n := range l.objects[space] {
		list = append(list, n)
	}
	slices.Sort(list)
	return list
}

// Checked is what Check found.
type Checked struct {
	Found   int
	Full    int   // objects that had no room in memory now
	Orphans int   // objects that a lower level has, and that are not brought since their parent is not in memory
	Gone    []int // objects that are not there
}

// Check pins all objects of a space, and verifies every byte. The error is that of the connection,
// or a *WrongError about what must not be.
func (l *Ledger) Check(ctx context.Context, c *client.Client, m *client.Mapping, space string) (r Checked, err error) {
	const lease, some = "check of the ledger", 50
	if err := c.Release(ctx, wire.Request{Leases: []string{lease}}); err != nil { // of a check that a kill interrupted
		return r, err
	}
	for batch := range slices.Chunk(l.Objects(space), some) {
		var misses []int
		for len(batch) > 0 {
			items, err := c.Pin(ctx, wire.Request{Lease: lease, Space: space, Names: namesOf(batch)})
			if err != nil {
				return r, err
			}
			var again []int
			for i, v := range items {
				switch v.Status {
				case wire.StatusPending:
					again = append(again, batch[i])
					continue
				case wire.StatusMiss:
					misses = append(misses, batch[i])
					continue
				case wire.StatusFull:
					r.Full++
					continue
				}
				if err := wrong(m, v, space, batch[i]); err != nil {
					return r, &WrongError{fmt.Errorf("what it has to keep: %w", err)}
				}
				r.Found++
			}
			batch = again
		}
		if err := c.Release(ctx, wire.Request{Leases: []string{lease}}); err != nil {
			return r, err
		}
		there, err := stat(ctx, c, space, misses)
		if err != nil {
			return r, err
		}
		for _, n := range misses {
			if there[n] {
				r.Orphans++
			} else {
				r.Gone = append(r.Gone, n)
			}
		}
	}
	return r, nil
}

// stat returns which objects a level has, whatever their parents.
func stat(ctx context.Context, c *client.Client, space string, numbers []int) (there map[int]bool, err error) {
	there = map[int]bool{}
	for len(numbers) > 0 {
		p, err := c.Stat(ctx, wire.Request{Space: space, Names: namesOf(numbers)})
		if err != nil {
			return nil, err
		}
		var again []int
		for i, v := range p.Items {
			switch v.Status {
			case wire.StatusPending:
				again = append(again, numbers[i])
			case wire.StatusHit:
				there[numbers[i]] = true
			}
		}
		numbers = again
	}
	return there, nil
}

// WrongError is about an answer of a daemon that is wrong.
type WrongError struct{ err error }

func (e *WrongError) Error() string { return e.err.Error() }

// Unwrap returns what was wrong.
func (e *WrongError) Unwrap() error { return e.err }
