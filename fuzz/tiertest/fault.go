package tiertest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"

	"github.com/ringcache/ringcache/tier"
)

// Fault is a level in front of another one, which fails as it is told: see [Fault.Do]. It counts
// calls. Until it is told anything, it passes everything on.
type Fault struct {
	tier.Level

	mu       sync.Mutex
	do       func(Call) Answer
	calls    map[string]int
	elements map[string]int
}

// A Call is one element of a batch, before the level has it. List is one element, with the space as the
// key's.
type Call struct {
	Method string // "Stat", "Get", "Put", "Delete" or "List"
	Key    tier.Key
	N      int // elements of the method before this one, since NewFault
}

// An Answer is what becomes of an element. The zero value passes it on.
type Answer struct {
	// Err is the answer in place of the level's, which does not see the element: such as
	// tier.ErrUnavailable.
	Err error
	// Hang waits until the context ends, whose error is the answer.
	Hang bool
	// Wait, if not nil, is waited for first, or the end of the context: a delay that ends when the test
	// wants.
	Wait <-chan struct{}
	// Lose removes the object from the level: before a Stat or Get, and after a Put, which
	// reports success all the same.
	Lose bool
	// Damage is damage that the level finds in the object: a Get drops it, and is answered with
	// tier.ErrNotFound and tier.ErrCorrupt. Other methods are passed on.
	Damage bool
}

// NewFault returns a Fault in front of a level, which it closes when it is closed.
func NewFault(l tier.Level) *Fault {
	return &Fault{Level: l, calls: map[string]int{}, elements: map[string]int{}}
}

// Do replaces what decides about elements; nil passes everything on. It is called by one goroutine at a time,
// in the order of the batch, and must not call the Fault.
func (f *Fault) Do(do func(Call) Answer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.do = do
}

// Fail answers every element with an error, until it is called with nil.
func (f *Fault) Fail(err error) {
	if err == nil {
		f.Do(nil)
		return
	}
	f.Do(func(Call) Answer { return Answer{Err: err} })
}

// Calls returns how often a method was called.
func (f *Fault) Calls(method string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[method]
}

// Elements returns how many elements the calls of a method had.
func (f *Fault) Elements(method string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.elements[method]
}

// ask decides about a call.
func (f *Fault) ask(method string, keys []tier.Key) []Answer {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[method]++
	answers := make([]Answer, len(keys))
	for i, k := range keys {
		if f.do != nil {
			answers[i] = f.do(Call{Method: method, Key: k, N: f.elements[method]})
		}
		f.elements[method]++
	}
	return answers
}

// before does what an answer asks for in front of the level, and returns the error of the element.
func (f *Fault) before(ctx context.Context, method string, k tier.Key, a Answer) error {
	if a.Wait != nil {
		select {
		case <-a.Wait:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if a.Hang {
		<-ctx.Done()
		return ctx.Err()
	}
	if a.Err != nil {
		return a.Err
	}
	if a.Damage && method == "Get" {
		f.lose(ctx, k)
		return fmt.Errorf("tiertest: object %v: %w", k, errors.Join(tier.ErrNotFound, tier.ErrCorrupt))
	}
	if a.Lose && (method == "Get" || method == "Stat") {
		f.lose(ctx, k)
	}
	return nil
}

// lose removes an object. One that a lease has stays: the level would not lose it either.
func (f *Fault) lose(ctx context.Context, k tier.Key) {
	f.Level.Delete(context.WithoutCancel(ctx), []tier.Key{k})
}

// split asks about a batch, and returns the error of each element that the level does not get, and
// the places of the others.
func (f *Fault) split(ctx context.Context, method string, keys []tier.Key) (answers []Answer, errs []error,
	pass []int) {
	answers = f.ask(method, keys)
	errs = make([]error, len(keys))
	for i, k := range keys {
		if errs[i] = f.before(ctx, method, k, answers[i]); errs[i] == nil {
			pass = append(pass, i)
		}
	}
	return answers, errs, pass
}

// Stat implements tier.Level.
func (f *Fault) Stat(ctx context.Context, keys []tier.Key) []tier.Found {
	_, errs, pass := f.split(ctx, "Stat", keys)
	found := make([]tier.Found, len(keys))
	for i, err := range errs {
		found[i].Err = err
	}
	if len(pass) > 0 {
		for j, one := range f.Level.Stat(ctx, at(keys, pass)) {
			found[pass[j]] = one
		}
	}
	return found
}

// Get implements tier.Level.
func (f *Fault) Get(ctx context.Context, gets []tier.Get) {
	keys := make([]tier.Key, len(gets))
	for i, g := range gets {
		keys[i] = g.Key
	}
	_, errs, pass := f.split(ctx, "Get", keys)
	for i, err := range errs {
		gets[i].Object, gets[i].Bytes, gets[i].Err = tier.Object{}, nil, err
	}
	if len(pass) > 0 {
		some := at(gets, pass)
		f.Level.Get(ctx, some)
		for j, g := range some {
			gets[pass[j]] = g
		}
	}
}

// Put implements tier.Level.
func (f *Fault) Put(ctx context.Context, puts []tier.Put) {
	keys := make([]tier.Key, len(puts))
	for i, p := range puts {
		keys[i] = p.Object.Key
	}
	answers, errs, pass := f.split(ctx, "Put", keys)
	for i, err := range errs {
		puts[i].Err = err
	}
	if len(pass) > 0 {
		some := at(puts, pass)
		f.Level.Put(ctx, some)
		for j, p := range some {
			puts[pass[j]] = p
			if answers[pass[j]].Lose && p.Err == nil {
				f.lose(ctx, p.Object.Key)
			}
		}
	}
}

// Delete implements tier.Level.
func (f *Fault) Delete(ctx context.Context, keys []tier.Key) []error {
	_, errs, pass := f.split(ctx, "Delete", keys)
	if len(pass) > 0 {
		for j, err := range f.Level.Delete(ctx, at(keys, pass)) {
			errs[pass[j]] = err
		}
	}
	return errs
}

// List implements tier.Level.
func (f *Fault) List(ctx context.Context, space string) iter.Seq2[tier.Object, error] {
	return func(yield func(tier.Object, error) bool) {
		_, errs, _ := f.split(ctx, "List", []tier.Key{{Space: space}})
		if errs[0] != nil {
			yield(tier.Object{}, errs[0])
			return
		}
		f.Level.List(ctx, space)(yield)
	}
}

// at returns the elements at places.
func at[T any](all []T, places []int) []T {
	some := make([]T, len(places))
	for j, i := range places {
		some[j] = all[i]
	}
	return some
}
