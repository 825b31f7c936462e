// Package ctxmutex is a mutex whose waiters can give up.
package ctxmutex

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
)

// ErrStopped reports that stop was closed before the caller had the mutex.
var ErrStopped = errors.New("the wait for the mutex was stopped")

// Mutex is given to one caller at a time, in the order in which they asked. The zero value is free. A
// mutex that is free is locked and unlocked with one atomic operation each. As with a sync.Mutex, whoever
// has it and asks for it again waits for himself: here until the context ends.
type Mutex struct {
	// state changes under mu only while somebody waits.
	state atomic.Uint32

	mu      sync.Mutex // held for bookkeeping only
	waiting []chan struct{}
}

// The values of state.
const (
	free uint32 = iota
	held
	heldAndWanted // somebody waits
)

// Lock waits for the mutex until ctx ends or stop is closed. Its error is then ctx's, or [ErrStopped].
func (m *Mutex) Lock(ctx context.Context, stop <-chan struct{}) error {
	if m.state.CompareAndSwap(free, held) {
		return nil
	}
	ready := m.join()
	if ready == nil {
		return nil
	}
	var err error
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-stop:
		err = ErrStopped
	}
	if m.giveUp(ready) {
		return err
	}
	return nil
}

// Unlock gives the mutex to the first of those who wait.
func (m *Mutex) Unlock() {
	if m.state.CompareAndSwap(held, free) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.waiting) == 0 { // whoever waited has given up
		m.state.Store(free)
		return
	}
	next := m.waiting[0]
	m.waiting = slices.Delete(m.waiting, 0, 1)
	if len(m.waiting) == 0 {
		m.state.Store(held)
	}
	close(next)
}

// join adds a waiter, whose channel is closed when it has the mutex. It returns nil if the mutex was free,
// and is the caller's now.
func (m *Mutex) join() (ready chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for {
		now := m.state.Load()
		switch {
		case now == free && m.state.CompareAndSwap(free, held):
			return nil
		case now != free && m.state.CompareAndSwap(now, heldAndWanted):
			ready = make(chan struct{})
			m.waiting = append(m.waiting, ready)
			return ready
		}
	}
}

// giveUp removes a waiter. It reports false if the waiter has the mutex by now.
func (m *Mutex) giveUp(ready chan struct{}) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.Index(m.waiting, ready)
	if i < 0 {
		return false
	}
	m.waiting = slices.Delete(m.waiting, i, i+1)
	return true
}
