package resp

import (
	"container/list"
	"context"
	"sync"

	"github.com/ringcache/ringcache/tier"
)

// users are the commands that read objects to clients, or those that store values of clients.
type users struct {
	mu   sync.Mutex
	busy map[tier.Key]use
}

// use are those of a key.
type use struct {
	n    int
	done chan struct{} // closed when n is 0; nil as long as nobody waits
}

// add notes a command that uses a key, until remove.
func (u *users) add(k tier.Key) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.addLocked(k)
}

// addAlone is add when no other command uses the key. The error is that of ctx.
func (u *users) addAlone(ctx context.Context, k tier.Key) error {
	for {
		u.mu.Lock()
		if u.busy[k].n == 0 {
			u.addLocked(k)
			u.mu.Unlock()
			return nil
		}
		u.mu.Unlock()
		if u.wait(ctx, k); ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

func (u *users) addLocked(k tier.Key) {
	if u.busy == nil {
		u.busy = map[tier.Key]use{}
	}
	b := u.busy[k]
	b.n++
	u.busy[k] = b
}

// remove ends an add.
func (u *users) remove(k tier.Key) {
	u.mu.Lock()
	defer u.mu.Unlock()
	b := u.busy[k]
	if b.n--; b.n > 0 {
		u.busy[k] = b
		return
	}
	delete(u.busy, k)
	if b.done != nil {
		close(b.done)
	}
}

// wait waits until no command uses a key. It reports whether it has waited: false at once if none does, and when
// ctx ends.
func (u *users) wait(ctx context.Context, k tier.Key) bool {
	u.mu.Lock()
	b, used := u.busy[k]
	if used && b.done == nil {
		b.done = make(chan struct{})
		u.busy[k] = b
	}
	u.mu.Unlock()
	if !used {
		return false
	}
	select {
	case <-b.done:
		return true
	case <-ctx.Done():
		return false
	}
}

// affirmed are objects of which EXISTS has lately said that they are there, with their sizes: at most maxAffirmed, of
// which those go first that were affirmed longest ago.
type affirmed struct {
	mu    sync.Mutex
	at    map[string]*list.Element
	order list.List // of sized
}

type sized struct {
	name string
	size int64
}

const maxAffirmed = 1 << 14

func (a *affirmed) add(name string, size int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e := a.at[name]; e != nil {
		e.Value.(*sized).size = size
		a.order.MoveToBack(e)
		return
	}
	if a.at == nil {
		a.at = map[string]*list.Element{}
	}
	a.at[name] = a.order.PushBack(&sized{name, size})
	if a.order.Len() > maxAffirmed {
		delete(a.at, a.order.Remove(a.order.Front()).(*sized).name)
	}
}

func (a *affirmed) size(name string) (int64, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e := a.at[name]; e != nil {
		return e.Value.(*sized).size, true
	}
	return 0, false
}
