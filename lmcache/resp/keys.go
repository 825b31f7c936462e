package resp

import (
	"context"
	"sync"

	"github.com/ringcache/ringcache/tier"
)

// users are the commands that read objects to clients, or those that store values of clients.
type users struct {
	mu   sync.Mutex
	busy map[tier.Key]*use
}

// use are those of a key.
type use struct {
	n    int
	done chan struct{} // closed when n is 0
}

// add notes a command that uses a key, until the function that it returns.
func (u *users) add(k tier.Key) (end func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.addLocked(k)
}

// addAlone is add when no other command uses the key. The error is that of ctx.
func (u *users) addAlone(ctx context.Context, k tier.Key) (end func(), err error) {
	for {
		u.mu.Lock()
		if u.busy[k] == nil {
			defer u.mu.Unlock()
			return u.addLocked(k), nil
		}
		u.mu.Unlock()
		if u.wait(ctx, k); ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

func (u *users) addLocked(k tier.Key) (end func()) {
	b := u.busy[k]
	if b == nil {
		if u.busy == nil {
			u.busy = map[tier.Key]*use{}
		}
		b = &use{done: make(chan struct{})}
		u.busy[k] = b
	}
	b.n++
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if b.n--; b.n == 0 {
			delete(u.busy, k)
			close(b.done)
		}
	}
}

// wait waits until no command uses a key. It reports whether it has waited: false at once if none does, and when
// ctx ends.
func (u *users) wait(ctx context.Context, k tier.Key) bool {
	u.mu.Lock()
	b := u.busy[k]
	u.mu.Unlock()
	if b == nil {
		return false
	}
	select {
	case <-b.done:
		return true
	case <-ctx.Done():
		return false
	}
}

// affirmed are objects of which EXISTS has lately said that they are there, with their sizes: at most maxAffirmed, the
// oldest of which go first.
type affirmed struct {
	mu    sync.Mutex
	sizes map[string]int64
	order []string // a ring
	next  int
}

const maxAffirmed = 1 << 13

func (a *affirmed) add(name string, size int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sizes == nil {
		a.sizes = map[string]int64{}
	}
	_, known := a.sizes[name]
	a.sizes[name] = size
	switch {
	case known:
		return
	case len(a.order) < maxAffirmed:
		a.order = append(a.order, name)
		return
	}
	delete(a.sizes, a.order[a.next])
	a.order[a.next] = name
	a.next = (a.next + 1) % maxAffirmed
}

func (a *affirmed) size(name string) (int64, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n, ok := a.sizes[name]
	return n, ok
}
