package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/shmstore"
)

const (
	keys         = 250 // of a segment, so that they don't fit together
	openRequests = 16  // at most, sent and not ended
	requesters   = 3   // goroutines that make requests
)

// writer has a store, and makes requests until it is ended or killed.
type writer struct {
	c     childCommand
	store store

	// sending is held while a request is sent, and exclusively while the readers are reset,
	// so that the lines of both come in the order of the facts. gate is held exclusively by
	// a goroutine that needs a store without requests.
	sending, gate sync.RWMutex

	mu     sync.Mutex
	open   map[string]request // sent
	idle   *sync.Cond         // signals that open or fences changed
	fences map[int]shmstore.Fence
	fenced int
	leaks  []*os.File
	failed chan error
}

func runWriter(c childCommand, orders <-chan message) error {
	w := &writer{c: c, open: map[string]request{}, fences: map[int]shmstore.Fence{}, failed: make(chan error, 1)}
	w.idle = sync.NewCond(&w.mu)
	if err := w.start(); err != nil {
		return err
	}
	for n := range requesters {
		go w.run(n, w.request)
	}
	go w.run(requesters, w.disturb)
	for {
		select {
		case err := <-w.failed:
			return err
		case m := <-orders:
			if m.Kind == "end" {
				return w.end(m.Keep, orders)
			}
			if err := w.handle(m); err != nil {
				return err
			}
		}
	}
}

// start opens the store, and reports what is in it.
func (w *writer) start() (err error) {
	var a shmstore.Adoption
	opening := true
	watch := func(ch shmstore.Change) {
		switch {
		case opening: // what is found then is part of ready
		case ch.Present:
			report(message{Kind: "added", Objects: []object{{Key: ch.Key, ID: ch.ID}}})
		default:
			report(message{Kind: "removed", Objects: []object{{Key: ch.Key, ID: ch.ID}}})
		}
	}
	if w.store, a, err = openStore(w.c.Store, w.c.Adopt, watch); err != nil {
		return err
	}
	if err := w.store.check(); err != nil {
		return err
	}
	all, err := w.store.contents()
	if err != nil {
		return fmt.Errorf("after the adoption %+v: %w", a, err)
	}
	opening = false
	var n int64
	for _, o := range all {
		n += int64(o.Size)
	}
	report(message{Kind: "ready", Adoption: &a, Objects: all, Bytes: n})
	w.fence() // frees what the last writer left in quarantine
	return nil
}

// run repeats one activity until it fails.
func (w *writer) run(n int, activity func(*rand.Rand, string) error) {
	rng := rand.New(rand.NewPCG(w.c.Seed, uint64(n)))
	for i := 0; ; i++ {
		if err := activity(rng, fmt.Sprintf("%d-%d-%d", w.c.Life, n, i)); err != nil {
			select {
			case w.failed <- err:
			default:
			}
			return
		}
	}
}

func (w *writer) need(rng *rand.Rand, i int) need {
	k := min(rng.IntN(keys), rng.IntN(keys))
	size := int(math.Exp2(rng.Float64() * math.Log2(float64(w.c.Store.maxObject()))))
	if rng.IntN(200) == 0 {
		size = w.c.Store.maxObject() + 1
	}
	o := need{
		object:  object{Key: fmt.Sprint("k", k), Nonce: rng.Uint64(), Size: size},
		discard: rng.IntN(40) == 0, wait: rng.IntN(4) == 0, verify: rng.IntN(10) == 0,
		spoil: w.c.Plant == "byte" && i == 0,
	}
	if k%3 == 0 {
		o.tenant = boundedTenant
	}
	return o
}

// request makes one request, and sends it or not.
func (w *writer) request(rng *rand.Rand, id string) error {
	w.gate.RLock()
	defer w.gate.RUnlock()
	w.await(func() bool { return len(w.open) < openRequests })
	var needs []need
	for i := range 1 + rng.IntN(4) {
		needs = append(needs, w.need(rng, i))
	}
	r, err := w.store.begin(id, needs)
	if err != nil {
		return err
	}
	defer r.rollback() // does nothing after commit
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rng.IntN(50))*time.Millisecond)
	defer cancel()
	for _, o := range needs {
		switch err := r.obtain(ctx, o); {
		case err == nil:
		case !refused(err):
			return fmt.Errorf("%v: %w", o.object, err)
		case w.c.Store.Kind == "cache":
			return nil // which sends all items or none
		case errors.Is(err, objstore.ErrFull):
			w.fence()
		}
	}
	if rng.IntN(12) == 0 {
		return nil
	}
	uses := 1
	if rng.IntN(4) == 0 {
		uses += rng.IntN(3)
	}
	return w.send(id, r, uses)
}

// refused reports errors that a request may get: the store is full, or the test asked for one.
func refused(err error) bool {
	var large *mmcache.TooLargeError
	for _, e := range []error{objstore.ErrFull, objstore.ErrTooLarge, objstore.ErrKeyExists, errGivenUp,
		context.DeadlineExceeded} {
		if errors.Is(err, e) {
			return true
		}
	}
	return errors.As(err, &large)
}

func (w *writer) send(id string, r request, uses int) error {
	w.sending.RLock()
	defer w.sending.RUnlock()
	w.mu.Lock()
	w.open[id] = r
	w.mu.Unlock()
	sent, err := r.commit(uses)
	if err != nil {
		return err
	}
	if w.c.Plant == "loss" { // the engine has not answered yet
		r.finish()
		for _, o := range sent {
			if err := w.store.remove(o.Key); err != nil {
				return err
			}
		}
	}
	report(message{Kind: "sent", Request: id, Objects: sent})
	return nil
}

// disturb does what happens between requests: fences, checks, removals, clears.
func (w *writer) disturb(rng *rand.Rand, _ string) error {
	time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond) // how often, nothing depends on it
	if rng.IntN(40) == 0 {
		w.gate.Lock()
		defer w.gate.Unlock()
		return w.clear()
	}
	w.gate.RLock()
	defer w.gate.RUnlock()
	switch rng.IntN(40) {
	case 0, 1, 2, 3, 4, 5, 6, 7:
		w.fence()
		return nil
	case 8:
		return w.store.check()
	}
	return w.store.remove(fmt.Sprint("k", rng.IntN(keys)))
}

// clear clears the store after all requests have ended and were read: a FIFO would also drop objects that a
// reader of an aborted request still reads. The caller holds the gate.
func (w *writer) clear() error {
	w.await(func() bool { return len(w.open) == 0 })
	w.fence()
	w.await(func() bool { return len(w.fences) == 0 })
	return w.store.clear(context.Background())
}

// await waits until cond, which is called with mu held, is true.
func (w *writer) await(cond func() bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for !cond() {
		w.idle.Wait()
	}
}
