package tier_test

import (
	"bytes"
	"context"
	"iter"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/tiertest"
	"github.com/ringcache/ringcache/tier"
)

// panicking is a memory level, and its leases, whose method of a name panics.
type panicking struct {
	*tiertest.Map
	method *string
}

func (p panicking) check(method string) {
	if *p.method == method {
		panic("planted in " + method)
	}
}

func (p panicking) Stat(ctx context.Context, keys []tier.Key) []tier.Found {
	p.check("Stat")
	return p.Map.Stat(ctx, keys)
}
func (p panicking) Get(ctx context.Context, gets []tier.Get) { p.check("Get"); p.Map.Get(ctx, gets) }
func (p panicking) Put(ctx context.Context, puts []tier.Put) { p.check("Put"); p.Map.Put(ctx, puts) }
func (p panicking) Delete(ctx context.Context, keys []tier.Key) []error {
	p.check("Delete")
	return p.Map.Delete(ctx, keys)
}
func (p panicking) List(ctx context.Context, space string) iter.Seq2[tier.Object, error] {
	return func(yield func(tier.Object, error) bool) {
		for o, err := range p.Map.List(ctx, space) {
			if !yield(o, err) {
				return
			}
			p.check("List")
		}
	}
}
func (p panicking) Usage() tier.Usage         { p.check("Usage"); return p.Map.Usage() }
func (p panicking) Segment() tier.Segment     { p.check("Segment"); return p.Map.Segment() }
func (p panicking) Leases() []tier.LeaseState { p.check("Leases"); return p.Map.Leases() }
func (p panicking) Lease(ctx context.Context, o tier.LeaseOptions) (tier.Lease, error) {
	p.check("Lease")
	l, err := p.Map.Lease(ctx, o)
	return panickingLease{l, p}, err
}

type panickingLease struct {
	tier.Lease
	of panicking
}

func (p panickingLease) Pin(keys []tier.Key) []tier.Placed {
	p.of.check("Pin")
	return p.Lease.Pin(keys)
}
func (p panickingLease) Unpin(keys []tier.Key) { p.of.check("Unpin"); p.Lease.Unpin(keys) }
func (p panickingLease) Reserve(objects []tier.Object) []tier.Placed {
	p.of.check("Reserve")
	return p.Lease.Reserve(objects)
}
func (p panickingLease) Commit(keys []tier.Key) []error {
	p.of.check("Commit")
	return p.Lease.Commit(keys)
}
func (p panickingLease) Held(keys []tier.Key) []tier.Placed {
	p.of.check("Held")
	return p.Lease.Held(keys)
}
func (p panickingLease) Abort(keys []tier.Key) []error {
	p.of.check("Abort")
	return p.Lease.Abort(keys)
}
func (p panickingLease) SetUntil(until time.Time) error {
	p.of.check("SetUntil")
	return p.Lease.SetUntil(until)
}
func (p panickingLease) PinPrefix(keys []tier.Key) []tier.Placed {
	p.of.check("PinPrefix")
	return p.Lease.PinPrefix(keys)
}
func (p panickingLease) Expire()           { p.of.check("Expire"); p.Lease.Expire() }
func (p panickingLease) ReleaseSome() bool { p.of.check("ReleaseSome"); return p.Lease.ReleaseSome() }
func (p panickingLease) Summary() tier.LeaseSummary {
	p.of.check("Summary")
	return p.Lease.Summary()
}
func (p panickingLease) Release()               { p.of.check("Release"); p.Lease.Release() }
func (p panickingLease) State() tier.LeaseState { p.of.check("State"); return p.Lease.State() }

// log returns a logger, and what it has logged. A test reads it when the store is at rest.
func log() (*slog.Logger, *bytes.Buffer) {
	var out bytes.Buffer
	return slog.New(slog.NewTextHandler(&out, nil)), &out
}

// TestPanicOfALowerLevel: a level that panics in a method fails that call and is away when it fails a probe,
// too; the others answer, the panic is logged once with its stack, and the level comes back.
func TestPanicOfALowerLevel(t *testing.T) {
	for _, method := range []string{"Stat", "Get", "Put", "Delete", "List"} {
		t.Run(method, func(t *testing.T) {
			in(t, func(t *testing.T) {
				logger, logged := log()
				b := newBed(t, 1<<20, func(o *tier.Options) {
					o.Logger, o.PromoteAfter = logger, -1
					o.Lower[1].PromoteAfter = -1
				})
				require.NoError(t, put(b.maps[0], "on disk", "", 100))
				require.NoError(t, put(b.maps[1], "remote", "", 100))
				b.remote.Do(func(c tiertest.Call) tiertest.Answer {
					if c.Method == method || method == "Get" && c.Method == "Stat" {
						panic("planted in " + method)
					}
					return tiertest.Answer{}
				})
				l := b.lease("engine")
				for i := range 3 {
					require.NoError(t, b.get("on disk"))
					name := string(rune('a' + i))
					require.NoError(t, put(b, name, "", 100))
					if err := b.get("remote"); err != nil {
						require.ErrorIs(t, err, tier.ErrUnavailable)
					}
					for _, err := range b.pin(l, "on disk", "remote") {
						if err != nil {
							require.ErrorIs(t, err, tier.ErrUnavailable)
						}
					}
					_ = b.Delete(t.Context(), keys(name))
					var failed error
					for _, err := range b.List(t.Context(), "") {
						failed = err
					}
					if method == "List" {
						require.ErrorIs(t, failed, tier.ErrUnavailable)
						require.ErrorContains(t, failed, "planted in List")
					}
					synctest.Wait()
				}
				require.Positive(t, b.remote.Calls(method))
				require.Equal(t, method == "Stat" || method == "Get", b.State().Levels[2].Away)
				b.remote.Do(nil)
				l.Release()
				time.Sleep(time.Minute)
				require.False(t, b.State().Levels[2].Away)
				_, err := b.Drain(t.Context())
				require.NoError(t, err)
				require.NoError(t, b.get("remote"))
				require.Equal(t, 1, strings.Count(logged.String(), "please report it"), logged)
				require.Contains(t, logged.String(), "level=remote method=")
				require.Contains(t, logged.String(), "planted in "+method)
				require.Contains(t, logged.String(), "contained_test.go:", "the stack")
			})
		})
	}
}

// TestPanicOfTheMemoryLevel: a memory level, or a lease in it, that panics fails that call. The store goes on
// afterwards.
func TestPanicOfTheMemoryLevel(t *testing.T) {
	for _, method := range []string{
		"Stat", "Get", "Put", "Delete", "List", "Usage", "Segment", "Leases", "Lease",
		"Pin", "Unpin", "Reserve", "Commit", "Held", "Abort", "SetUntil", "Release", "State", "PinPrefix", "Expire", "ReleaseSome", "Summary",
	} {
		t.Run(method, func(t *testing.T) {
			in(t, func(t *testing.T) {
				logger, logged := log()
				memory := tiertest.NewMap(tiertest.MapOptions{Name: "memory", Capacity: 1 << 20})
				disk := tiertest.NewMap(tiertest.MapOptions{Name: "disk"})
				var planted string
				s, err := tier.Open(t.Context(), tier.Options{Memory: panicking{memory, &planted}, Lower: []tier.Lower{{Level: disk}}, Logger: logger})
				require.NoError(t, err)
				require.NoError(t, put(disk, "on disk", "", 100))
				before, err := s.Lease(t.Context(), tier.LeaseOptions{ID: "before", Owner: "test"})
				require.NoError(t, err)
				work := func() {
					_ = put(s, "a", "", 100)
					for _, name := range []string{"a", "on disk"} {
						g := []tier.Get{{Key: key(name)}}
						s.Get(t.Context(), g)
						if g[0].Err == nil {
							require.Equal(t, content(name, 100), g[0].Bytes)
						}
					}
					s.Stat(t.Context(), keys("a"))
					for range s.List(t.Context(), "") {
					}
					s.State()
					s.Leases()
					l := before
					if opened, err := s.Lease(t.Context(), tier.LeaseOptions{ID: "engine", Owner: "test"}); err == nil {
						l = opened
					}
					if p := l.Reserve([]tier.Object{object("b", "", 100)})[0]; p.Err == nil {
						copy(p.Bytes, content("b", 100))
					}
					l.Commit(keys("b"))
					l.Abort(keys("b"))
					l.Pin(keys("a", "b", "on disk"))
					synctest.Wait()
					l.Held(keys("b"))
					_ = l.SetUntil(time.Now().Add(time.Hour))
					l.PinPrefix(keys("a", "b"))
					l.PinPrefix(nil)
					l.Summary()
					l.State()
					l.Unpin(keys("a", "b", "on disk"))
					s.Prefetch(t.Context(), keys("on disk"), 0)
					s.Delete(t.Context(), keys("a"))
					if l != before {
						l.Expire()
						l.ReleaseSome()
						l.Release()
					}
					time.Sleep(time.Minute) // writers and what is kept for a while
				}
				planted = method
				work()
				synctest.Wait()
				planted = ""
				work()
				g := []tier.Get{{Key: key("on disk")}}
				s.Get(t.Context(), g)
				require.NoError(t, g[0].Err)
				require.Equal(t, content("on disk", 100), g[0].Bytes)
				require.NoError(t, put(s, "new", "", 100))
				_, err = s.Drain(t.Context())
				require.NoError(t, err)
				if method != "Unpin" { // what could not be unpinned stays
					require.Empty(t, tier.Check(s))
				}
				require.NoError(t, s.Close())
				if method != "Segment" && method != "Put" { // the store does not call them
					require.GreaterOrEqual(t, strings.Count(logged.String(), "please report it"), 1, logged)
					require.Contains(t, logged.String(), "planted in "+method)
				}
			})
		})
	}
}

// TestPanicOfALoopIsTheLoops: a panic in the body of a loop over List is not the level's.
func TestPanicOfALoopIsTheLoops(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, nil)
		require.NoError(t, put(b.maps[1], "remote", "", 100))
		require.PanicsWithValue(t, "the loop's own", func() {
			for range b.List(t.Context(), "") {
				panic("the loop's own")
			}
		})
	})
}
