//go:build linux

package memory

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/internal/leasetable"
	"github.com/ringcache/ringcache/tier"
)

// large makes a level with room for n objects of one lease.
func large(t *testing.T, n int, now func() time.Time) (l *Level, objects []tier.Object) {
	o := options(t)
	o.Size, o.MaxObjects, o.MaxPins, o.Now = int64(n)*256+1<<20, n+64, 2*n, now
	for i := range n {
		objects = append(objects, object(fmt.Sprint("object ", i), "", 10))
	}
	return open(t, o), objects
}

// TestLargeExpiryKeepsNobodyWaiting: pins and reservations of a lease whose time has passed go in
// slices, and calls of others come between them. All of it was done in one hold of the lock.
func TestLargeExpiryKeepsNobodyWaiting(t *testing.T) {
	failpoint.Need(t)
	const n = 40 * slice
	var clock atomic.Int64
	l, objects := large(t, n, func() time.Time { return time.Unix(1_800_000_000, clock.Load()) })
	other := leaseOf(t, l, tier.LeaseOptions{ID: "other"})
	for _, name := range []string{"pins", "pins beside a reservation", "reservations"} {
		t.Run(name, func(t *testing.T) {
			x := leaseOf(t, l, tier.LeaseOptions{ID: "large", Until: l.now().Add(time.Minute)})
			requirePlaced(t, x.Reserve(objects))
			if name != "reservations" {
				requireNone(t, x.Commit(keysOf(objects)))
			}
			if name == "pins beside a reservation" {
				requirePlaced(t, x.Reserve([]tier.Object{object("r", "", 10)}))
			}
			clock.Add(int64(time.Hour))
			if name == "reservations" {
				other.State()
				require.Equal(t, n, x.Summary().Reserved)
				clock.Add(int64(tier.WriteTime))
			}
			var gone atomic.Int64
			failpoint.Set(func(name string) {
				if name == "tier.memory.unpin" || name == "tier.memory.abort" {
					gone.Add(1)
				}
			})
			// As the call that notices it does. The goroutine for the rest stands still in front of its
			// next slice.
			l.gate.Lock()
			l.mu.Lock()
			l.expire()
			l.mu.Unlock()
			first, free := gone.Load(), l.mu.TryLock()
			runs := l.sweeperRuns
			if free {
				l.mu.Unlock()
			}
			l.gate.Unlock()
			require.True(t, free, "others can go on")
			require.True(t, runs)
			require.Positive(t, first)
			require.LessOrEqual(t, first, int64(slice))
			begin := time.Now()
			for left := true; left; time.Sleep(time.Millisecond) {
				require.Less(t, time.Since(begin), 2*time.Minute, "the rest goes, too")
				l.mu.Lock()
				left = l.sweeperRuns
				l.mu.Unlock()
			}
			failpoint.Set(nil)
			require.GreaterOrEqual(t, gone.Load(), int64(n-slice), "one by one, but for the last slice")
			if name == "pins beside a reservation" {
				require.Equal(t, 1, x.Summary().Reserved)
				requireNone(t, x.Abort(keys("r")))
			}
			require.ErrorIs(t, x.Pin(keys("object 0"))[0].Err, tier.ErrEnded)
			for _, err := range l.Delete(context.Background(), keysOf(objects)) {
				if name == "reservations" {
					require.ErrorIs(t, err, tier.ErrNotFound)
				} else {
					require.NoError(t, err)
				}
			}
			require.Len(t, l.Leases(), 1)
			require.NoError(t, l.CheckStructure())
		})
	}
}

// TestExpireOutlivesTheProcess: the next process took a lease without a time that had expired for an open one, whose
// reservations never end. One with a time keeps that, since its client may write until then.
func TestExpireOutlivesTheProcess(t *testing.T) {
	for _, has := range []time.Duration{0, time.Hour} {
		o, c := options(t), newClock()
		o.Now = c.now
		l := open(t, o)
		lo := tier.LeaseOptions{ID: "x"}
		if has > 0 {
			lo.Until = c.now().Add(has)
		}
		x := leaseOf(t, l, lo)
		requirePlaced(t, x.Reserve([]tier.Object{object("a", "", 100)}))
		x.Expire()
		l = reopen(t, l)
		c.pass(has)
		require.Len(t, l.Leases()[0].Reserved, 1) // a call that notices the end
		c.pass(tier.WriteTime - time.Second)
		require.Len(t, l.Leases(), 1)
		c.pass(time.Second)
		require.Empty(t, l.Leases())
	}
}

func keysOf(objects []tier.Object) (keys []tier.Key) {
	for _, o := range objects {
		keys = append(keys, o.Key)
	}
	return keys
}

// TestEndedWhileLettingGo: a lease that has ended, and still lets go of what it had, answers ErrEnded,
// has its ID free for the next lease, and keeps nothing in a level that is closed then, or in the next
// one.
func TestEndedWhileLettingGo(t *testing.T) {
	const n = 20 * slice
	for _, how := range []string{"the same ID", "Close", "Release"} {
		t.Run(how, func(t *testing.T) {
			now := time.Unix(1_800_000_000, 0)
			l, objects := large(t, n, func() time.Time { return now })
			x := leaseOf(t, l, tier.LeaseOptions{ID: "large", Until: now.Add(time.Minute)})
			requirePlaced(t, x.Reserve(objects))
			requireNone(t, x.Commit(keysOf(objects)))
			// As in a call that has found that the time has passed, before the rest of it goes in the
			// background.
			l.mu.Lock()
			x.(*lease).expire(now)
			l.sweepSlice()
			require.Len(t, x.(*lease).pinned, n-slice)
			l.mu.Unlock()
			require.NoError(t, l.CheckStructure())
			require.ErrorIs(t, x.Pin(keysOf(objects[:1]))[0].Err, tier.ErrEnded)
			require.Empty(t, l.Leases())
			switch how {
			case "the same ID":
				next := leaseOf(t, l, tier.LeaseOptions{ID: "large", Owner: "another"})
				requirePlaced(t, next.Pin(keysOf(objects[:1])))
				x.Release()
				require.Len(t, next.State().Pinned, 1)
				next.Release()
			case "Release":
				x.Release()
			}
			old := l
			l = reopen(t, l)
			require.Zero(t, old.seg.Holds())
			require.Empty(t, l.Leases())
			require.Zero(t, l.Usage().Held)
		})
	}
}

// TestReservationsStayByTheClockThatNobodySets: if the clock on the wall is put forward, reservations
// stay until the client's own clock says that its time, and the time to write, have passed.
func TestReservationsStayByTheClockThatNobodySets(t *testing.T) {
	var mu sync.Mutex
	var running time.Duration
	begin := time.Now()
	o := options(t)
	o.Now = func() time.Time { // with its monotonic reading
		mu.Lock()
		defer mu.Unlock()
		return begin.Add(running)
	}
	l := open(t, o)
	x := leaseOf(t, l, tier.LeaseOptions{ID: "x", Until: l.now().Add(time.Hour)})
	require.NotEqual(t, x.(*lease).until, x.(*lease).until.Round(0), "the monotonic reading is kept")
	requirePlaced(t, x.Reserve([]tier.Object{object("r", "", 10)}))
	// The clock on the wall is put forward by an hour: for the schedule, the time has come.
	l.mu.Lock()
	r := x.(*lease).record
	r.Until = leasetable.Nanoseconds(begin)
	x.(*lease).place = l.table.ReplaceLease(x.(*lease).place, r)
	x.(*lease).record = r
	x.(*lease).waitForUntil()
	l.mu.Unlock()
	require.True(t, x.Summary().Expired)
	for _, c := range []struct {
		after time.Duration
		left  int
	}{{time.Hour, 1}, {tier.WriteTime - time.Second, 1}, {2 * time.Second, 0}} {
		mu.Lock()
		running += c.after
		mu.Unlock()
		require.Equal(t, c.left, x.Summary().Reserved, c)
	}
	require.Empty(t, l.Leases())
}

// TestLargeLeaseWhoseTimePassedMeanwhile: the process that takes it over lets go of it beside its other work.
func TestLargeLeaseWhoseTimePassedMeanwhile(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	l, objects := large(t, 20*slice, func() time.Time { return now })
	x := leaseOf(t, l, tier.LeaseOptions{ID: "large", Until: now.Add(time.Minute)})
	requirePlaced(t, x.Reserve(objects))
	requireNone(t, x.Commit(keysOf(objects)))
	require.NoError(t, l.Close())
	now = now.Add(time.Hour)
	l = open(t, l.o)
	require.Empty(t, l.Leases())
	next := leaseOf(t, l, tier.LeaseOptions{ID: "large"})
	requirePlaced(t, next.Pin(keysOf(objects)))
	next.Release()
	require.Zero(t, l.Usage().Held)
}
