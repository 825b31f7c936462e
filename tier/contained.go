package tier

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/ringcache/ringcache/internal/loglimit"
)

// contained is a level whose panics are failures of the level: the call answers ErrUnavailable for all of its
// elements, and whoever shares the process goes on. The store calls its levels through it. A panic of a
// goroutine that a level starts is the level's own matter.
type contained struct {
	Level
	*panics
}

// containedMemory is contained, of the memory level.
type containedMemory struct {
	contained
	memory MemoryLevel
}

// containedLease is contained, of a lease.
type containedLease struct {
	Lease
	*panics
}

// panics are those of one level.
type panics struct {
	level  string
	logger *slog.Logger
	logged loglimit.Limit // a level may panic in every call
}

// contain returns a level that has its panics contained.
func contain(l Level, logger *slog.Logger) contained {
	return contained{l, &panics{level: l.Name(), logger: logger}}
}

// containMemory is contain for the memory level, and for its leases.
func containMemory(l MemoryLevel, logger *slog.Logger) MemoryLevel {
	return &containedMemory{contain(l, logger), l}
}

// caught is deferred by each call. If the call panicked, fail gets its error.
func (p *panics) caught(method string, fail func(error)) {
	if v := recover(); v != nil {
		fail(p.note(method, v))
	}
}

// note logs a panic and returns the error of the call.
func (p *panics) note(method string, v any) error {
	p.logged.Warn(p.logger, "tier: a call of a level panicked: please report it",
		"level", p.level, "method", method, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
	return fmt.Errorf("tier: level %s: %s panicked: %v: %w", p.level, method, v, ErrUnavailable)
}

// Stat implements Level.
func (c contained) Stat(ctx context.Context, keys []Key) (found []Found) {
	defer c.caught("Stat", func(err error) { found = repeat(len(keys), Found{Err: err}) })
	return c.Level.Stat(ctx, keys)
}

// Get implements Level.
func (c contained) Get(ctx context.Context, gets []Get) {
	defer c.caught("Get", func(err error) { failGets(gets, err) })
	c.Level.Get(ctx, gets)
}

// Put implements Level.
func (c contained) Put(ctx context.Context, puts []Put) {
	defer c.caught("Put", func(err error) { failPuts(puts, err) })
	c.Level.Put(ctx, puts)
}

// Delete implements Level.
func (c contained) Delete(ctx context.Context, keys []Key) (errs []error) {
	defer c.caught("Delete", func(err error) { errs = repeat(len(keys), err) })
	return c.Level.Delete(ctx, keys)
}

// List implements Level.
func (c contained) List(ctx context.Context, space string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		if err := c.list(ctx, space, yield); err != nil {
			yield(Object{}, err)
		}
	}
}

// list returns the error of a panic, unless that is one of yield: the loop's own panics end the loop.
func (c contained) list(ctx context.Context, space string, yield func(Object, error) bool) (failed error) {
	outside, more := false, true
	defer func() {
		if outside {
			return
		}
		if v := recover(); v != nil {
			if err := c.note("List", v); more {
				failed = err
			}
		}
	}()
	for o, err := range c.Level.List(ctx, space) {
		outside = true
		more = yield(o, err)
		outside = false
		if !more {
			break
		}
	}
	return nil
}

// Usage implements Level.
func (c contained) Usage() (u Usage) {
	defer c.caught("Usage", func(error) { u = Usage{Objects: -1, Bytes: -1, Evicted: -1} })
	return c.Level.Usage()
}

// Segment implements MemoryLevel.
func (c *containedMemory) Segment() (g Segment) {
	defer c.caught("Segment", func(error) { g = Segment{} })
	return c.memory.Segment()
}

// Lease implements MemoryLevel.
func (c *containedMemory) Lease(ctx context.Context, o LeaseOptions) (l Lease, err error) {
	defer c.caught("Lease", func(failed error) { l, err = nil, failed })
	if l, err = c.memory.Lease(ctx, o); err != nil {
		return nil, err
	}
	return &containedLease{l, c.panics}, nil
}

// Leases implements MemoryLevel.
func (c *containedMemory) Leases() (states []LeaseState) {
	defer c.caught("Leases", func(error) { states = nil })
	return c.memory.Leases()
}

// Pin implements Lease.
func (c *containedLease) Pin(keys []Key) (placed []Placed) {
	defer c.caught("Pin", func(err error) { placed = repeat(len(keys), Placed{Err: err}) })
	return c.Lease.Pin(keys)
}

// PinPrefix implements Lease.
func (c *containedLease) PinPrefix(keys []Key) (placed []Placed) {
	defer c.caught("PinPrefix", func(err error) { placed = repeat(min(len(keys), 1), Placed{Err: err}) })
	return c.Lease.PinPrefix(keys)
}

// Unpin implements Lease.
func (c *containedLease) Unpin(keys []Key) {
	defer c.caught("Unpin", func(error) {})
	c.Lease.Unpin(keys)
}

// Reserve implements Lease.
func (c *containedLease) Reserve(objects []Object) (placed []Placed) {
	defer c.caught("Reserve", func(err error) { placed = repeat(len(objects), Placed{Err: err}) })
	return c.Lease.Reserve(objects)
}

// Commit implements Lease.
func (c *containedLease) Commit(keys []Key) (errs []error) {
	defer c.caught("Commit", func(err error) { errs = repeat(len(keys), err) })
	return c.Lease.Commit(keys)
}

// Held implements Lease.
func (c *containedLease) Held(keys []Key) (placed []Placed) {
	defer c.caught("Held", func(err error) { placed = repeat(len(keys), Placed{Err: err}) })
	return c.Lease.Held(keys)
}

// Abort implements Lease.
func (c *containedLease) Abort(keys []Key) (errs []error) {
	defer c.caught("Abort", func(err error) { errs = repeat(len(keys), err) })
	return c.Lease.Abort(keys)
}

// SetUntil implements Lease.
func (c *containedLease) SetUntil(until time.Time) (err error) {
	defer c.caught("SetUntil", func(failed error) { err = failed })
	return c.Lease.SetUntil(until)
}

// Expire implements Lease.
func (c *containedLease) Expire() {
	defer c.caught("Expire", func(error) {})
	c.Lease.Expire()
}

// Release implements Lease.
func (c *containedLease) Release() {
	defer c.caught("Release", func(error) {})
	c.Lease.Release()
}

// ReleaseSome implements Lease.
func (c *containedLease) ReleaseSome() (more bool) {
	defer c.caught("ReleaseSome", func(error) { more = false })
	return c.Lease.ReleaseSome()
}

// State implements Lease.
func (c *containedLease) State() (state LeaseState) {
	defer c.caught("State", func(error) { state = LeaseState{} })
	return c.Lease.State()
}

// Summary implements Lease.
func (c *containedLease) Summary() (sum LeaseSummary) {
	defer c.caught("Summary", func(error) { sum = LeaseSummary{} })
	return c.Lease.Summary()
}
