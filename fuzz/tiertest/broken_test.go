package tiertest

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/ringcache/ringcache/tier"
)

// recorder is a test that may fail.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	report   string
	cleanups []func()
}

func (r *recorder) fail(report string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.report == "" {
		r.report = report
	}
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.fail(fmt.Sprintf(format, args...))
	runtime.Goexit()
}
func (r *recorder) FailNow()                          { r.Fatalf("failed") }
func (r *recorder) Fail()                             { r.fail("failed") }
func (r *recorder) Errorf(format string, args ...any) { r.fail(fmt.Sprintf(format, args...)) }
func (r *recorder) Logf(string, ...any)               {}
func (r *recorder) Cleanup(do func())                 { r.cleanups = append(r.cleanups, do) }
func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.report != ""
}

// failureOf returns what a check reports of a level, "" if it passes.
func failureOf(t testing.TB, c check, o Options) string {
	o.setDefaults()
	r := &recorder{TB: t}
	in := func(do func()) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() {
				if x := recover(); x != nil {
					r.fail(fmt.Sprintf("panic: %v", x))
				}
			}()
			do()
		}()
		<-done
	}
	in(func() { c.run(&bed{TB: r, o: &o}) })
	for i := len(r.cleanups) - 1; i >= 0; i-- {
		in(r.cleanups[i])
	}
	return r.report
}

// broken is a Map with a defect: what is not nil replaces a method, or what opens it again.
type broken struct {
	*Map
	stat    func(ctx context.Context, keys []tier.Key) []tier.Found
	get     func(ctx context.Context, gets []tier.Get)
	put     func(ctx context.Context, puts []tier.Put)
	delete  func(ctx context.Context, keys []tier.Key) []error
	list    func(ctx context.Context, space string) iter.Seq2[tier.Object, error]
	usage   func() tier.Usage
	close   func() error
	lease   func(ctx context.Context, o tier.LeaseOptions) (tier.Lease, error)
	leases  func() []tier.LeaseState
	segment func() tier.Segment
	name    func() string
	wrap    func(tier.Lease) tier.Lease // of what lease returns
	reopen  func(m *Map) *Map
}

func (b *broken) Name() string {
	if b.name != nil {
		return b.name()
	}
	return b.Map.Name()
}

func (b *broken) Stat(ctx context.Context, keys []tier.Key) []tier.Found {
	if b.stat != nil {
		return b.stat(ctx, keys)
	}
	return b.Map.Stat(ctx, keys)
}

func (b *broken) Get(ctx context.Context, gets []tier.Get) {
	if b.get != nil {
		b.get(ctx, gets)
		return
	}
	b.Map.Get(ctx, gets)
}

func (b *broken) Put(ctx context.Context, puts []tier.Put) {
	if b.put != nil {
		b.put(ctx, puts)
		return
	}
	b.Map.Put(ctx, puts)
}

func (b *broken) Delete(ctx context.Context, keys []tier.Key) []error {
	if b.delete != nil {
		return b.delete(ctx, keys)
	}
	return b.Map.Delete(ctx, keys)
}

func (b *broken) List(ctx context.Context, space string) iter.Seq2[tier.Object, error] {
	if b.list != nil {
		return b.list(ctx, space)
	}
	return b.Map.List(ctx, space)
}

func (b *broken) Usage() tier.Usage {
	if b.usage != nil {
		return b.usage()
	}
	return b.Map.Usage()
}

func (b *broken) Close() error {
	if b.close != nil {
		return b.close()
	}
	return b.Map.Close()
}

func (b *broken) Lease(ctx context.Context, o tier.LeaseOptions) (tier.Lease, error) {
	lease := b.Map.Lease
	if b.lease != nil {
		lease = b.lease
	}
	l, err := lease(ctx, o)
	if err == nil && b.wrap != nil {
		l = b.wrap(l)
	}
	return l, err
}

func (b *broken) Leases() []tier.LeaseState {
	if b.leases != nil {
		return b.leases()
	}
	return b.Map.Leases()
}

func (b *broken) Segment() tier.Segment {
	if b.segment != nil {
		return b.segment()
	}
	return b.Map.Segment()
}

// options are those of levels with a defect.
func brokenOptions(defect func(b *broken)) Options {
	var mu sync.Mutex
	var ahead time.Duration
	now := func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return time.Now().Add(ahead)
	}
	planted := func(m *Map) *broken {
		b := &broken{Map: m}
		defect(b)
		return b
	}
	reopen := func(_ testing.TB, l tier.Level) tier.Level {
		b := l.(*broken)
		if b.reopen != nil {
			return planted(b.reopen(b.Map))
		}
		return planted(b.Map.Reopen())
	}
	return Options{
		Open: func(_ testing.TB, capacity int64) tier.Level {
			return planted(NewMap(MapOptions{Capacity: capacity, Overhead: 100, Now: now}))
		},
		Reopen: reopen,
		Kill:   reopen,
		Damage: func(_ testing.TB, l tier.Level, k tier.Key) { l.(*broken).Map.Damage(k) },
		At:     func(_ testing.TB, l tier.Level, offset uint64, n int64) []byte { return l.(*broken).At(offset, n) },
		Now:    now,
		Advance: func(d time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			ahead += d
		},
		Histories: 4,
		patience:  300 * time.Millisecond,
	}
}

// brokenLease is a lease with a defect.
type brokenLease struct {
	tier.Lease
	pin       func(keys []tier.Key) []tier.Placed
	pinPrefix func(keys []tier.Key) []tier.Placed
	unpin     func(keys []tier.Key)
	reserve   func(objects []tier.Object) []tier.Placed
	held      func(keys []tier.Key) []tier.Placed
	commit    func(keys []tier.Key) []error
	abort     func(keys []tier.Key) []error
	setUntil  func(until time.Time) error
	expire    func()
	some      func() bool
	release   func()
	state     func() tier.LeaseState
	summary   func() tier.LeaseSummary
}

func (l *brokenLease) PinPrefix(keys []tier.Key) []tier.Placed {
	if l.pinPrefix != nil {
		return l.pinPrefix(keys)
	}
	return l.Lease.PinPrefix(keys)
}

func (l *brokenLease) Expire() {
	if l.expire != nil {
		l.expire()
		return
	}
	l.Lease.Expire()
}

func (l *brokenLease) ReleaseSome() bool {
	if l.some != nil {
		return l.some()
	}
	return l.Lease.ReleaseSome()
}

func (l *brokenLease) Summary() tier.LeaseSummary {
	if l.summary != nil {
		return l.summary()
	}
	return l.Lease.Summary()
}

func (l *brokenLease) Pin(keys []tier.Key) []tier.Placed {
	if l.pin != nil {
		return l.pin(keys)
	}
	return l.Lease.Pin(keys)
}

func (l *brokenLease) Unpin(keys []tier.Key) {
	if l.unpin != nil {
		l.unpin(keys)
		return
	}
	l.Lease.Unpin(keys)
}

func (l *brokenLease) Reserve(objects []tier.Object) []tier.Placed {
	if l.reserve != nil {
		return l.reserve(objects)
	}
	return l.Lease.Reserve(objects)
}

func (l *brokenLease) Held(keys []tier.Key) []tier.Placed {
	if l.held != nil {
		return l.held(keys)
	}
	return l.Lease.Held(keys)
}

func (l *brokenLease) Commit(keys []tier.Key) []error {
	if l.commit != nil {
		return l.commit(keys)
	}
	return l.Lease.Commit(keys)
}

func (l *brokenLease) Abort(keys []tier.Key) []error {
	if l.abort != nil {
		return l.abort(keys)
	}
	return l.Lease.Abort(keys)
}

func (l *brokenLease) SetUntil(until time.Time) error {
	if l.setUntil != nil {
		return l.setUntil(until)
	}
	return l.Lease.SetUntil(until)
}

func (l *brokenLease) Release() {
	if l.release != nil {
		l.release()
		return
	}
	l.Lease.Release()
}

func (l *brokenLease) State() tier.LeaseState {
	if l.state != nil {
		return l.state()
	}
	return l.Lease.State()
}
