package tier_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/tiertest"
	"github.com/ringcache/ringcache/tier"
)

// isMissed reports whether Drain has only to say what levels may lack: what was stored again while one was away and
// went from memory before it could be asked, or what the backlog had no room for.
func isMissed(err error) bool {
	return err != nil && strings.Contains(err.Error(), "may be missing in lower levels")
}

// drain waits an hour at the most, by the clock of a bubble, until no write is pending.
func (b *bed) drain() {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Hour)
	defer cancel()
	left, err := b.Drain(ctx)
	require.NoError(b.t, err, "%d objects are left", len(left))
}

// TestAPendingChainIsWrittenInOrderAfterARestart: it is longer than what a worker looks at, and leases list
// their pins in any order.
func TestAPendingChainIsWrittenInOrderAfterARestart(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, func(o *tier.Options) { o.Lower = o.Lower[:1] })
		b.disk.Fail(tier.ErrUnavailable)
		names := make([]string, 400)
		parent := ""
		for i, n := range rand.Perm(len(names)) {
			names[i] = fmt.Sprint("c", n)
			require.NoError(t, put(b, names[i], parent, 16))
			parent = names[i]
		}
		require.NoError(t, b.Close())
		var order []string
		b.disk.Do(func(c tiertest.Call) tiertest.Answer {
			if is(c, "Put") {
				order = append(order, c.Key.Name)
			}
			return tiertest.Answer{}
		})
		b.open()
		b.drain()
		require.Equal(t, names, order)
	})
}

// TestAChainBeyondTheLimitsIsWrittenInOrderAfterARestart: what the backlog had no room for was in front of its parents,
// in the order in which a lease lists its pins.
func TestAChainBeyondTheLimitsIsWrittenInOrderAfterARestart(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, func(o *tier.Options) { o.Lower, o.MaxBacklog = o.Lower[:1], 160 })
		b.disk.Fail(tier.ErrUnavailable)
		l := b.lease("l")
		names := make([]string, 800)
		parent := ""
		for i, n := range rand.Perm(len(names)) {
			names[i] = fmt.Sprint("c", n)
			b.store(l, names[i], parent, 16)
			parent = names[i]
		}
		require.NoError(t, b.Close())
		var order []string
		b.disk.Do(func(c tiertest.Call) tiertest.Answer {
			if is(c, "Put") {
				order = append(order, c.Key.Name)
			}
			return tiertest.Answer{}
		})
		b.open()
		b.drain()
		require.Equal(t, names, order)
	})
}

// TestARefusedBatchIsTriedAgainInOrder: it went back into the queue in the reverse order, so that a chain was then
// written in one call for each object.
func TestARefusedBatchIsTriedAgainInOrder(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, func(o *tier.Options) { o.Lower, o.MaxCalls = o.Lower[:1], 2 }) // one call writes at a time
		b.disk.Fail(tier.ErrUnavailable)
		names := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
		for _, name := range names {
			require.NoError(t, put(b, name, "", 16))
		}
		synctest.Wait() // all of them are in the queue, and make one batch
		var refused, order []string
		b.disk.Do(func(c tiertest.Call) tiertest.Answer {
			switch {
			case !is(c, "Put"):
			case len(refused) < len(names):
				refused = append(refused, c.Key.Name)
				return tiertest.Answer{Err: tier.ErrUnavailable}
			default:
				order = append(order, c.Key.Name)
			}
			return tiertest.Answer{}
		})
		b.drain()
		require.Equal(t, names, refused)
		require.Equal(t, names, order)
	})
}

// TestARefusedDeleteLeavesTheParentInFront: what a worker looks at are the children.
func TestARefusedDeleteLeavesTheParentInFront(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, func(o *tier.Options) { o.Lower = o.Lower[:1] })
		b.disk.Fail(tier.ErrUnavailable)
		require.NoError(t, put(b, "root", "", 16))
		for i := range 300 {
			require.NoError(t, put(b, fmt.Sprint("child", i), "root", 16))
		}
		l := b.lease("client")
		require.NoError(t, l.Pin(keys("root"))[0].Err)
		require.ErrorIs(t, b.Delete(t.Context(), keys("root"))[0], tier.ErrInUse)
		l.Release()
		var first string
		b.disk.Do(func(c tiertest.Call) tiertest.Answer {
			if is(c, "Put") && first == "" {
				first = c.Key.Name
			}
			return tiertest.Answer{}
		})
		b.drain()
		require.Equal(t, "root", first)
	})
}

// TestAParentFarBehindItsChildrenIsWritten: somebody stores it last.
func TestAParentFarBehindItsChildrenIsWritten(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, nil)
		b.disk.Fail(tier.ErrUnavailable)
		b.remote.Fail(tier.ErrUnavailable)
		for i := range 300 {
			require.NoError(t, put(b, fmt.Sprint("child", i), "root", 16))
		}
		require.NoError(t, put(b, "root", "", 16))
		require.NoError(t, put(b, "other", "", 16))
		b.disk.Do(nil)
		b.remote.Do(nil)
		b.drain()
		require.Equal(t, "memory disk remote", b.has("other"))
	})
}

// TestARingOfParentsIsWritten: two objects name each other as parent.
func TestARingOfParentsIsWritten(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, nil)
		puts := []tier.Put{
			{Object: object("a", "b", 16), Bytes: content("a", 16)},
			{Object: object("b", "a", 16), Bytes: content("b", 16)},
		}
		b.Put(t.Context(), puts)
		require.NoError(t, puts[0].Err)
		require.NoError(t, puts[1].Err)
		b.drain()
		require.Equal(t, "memory disk remote", b.has("a"))
	})
}

// TestASmallChildDoesNotPassItsParentForRoom: the order gives way to nothing but a list in which all wait for
// others.
func TestASmallChildDoesNotPassItsParentForRoom(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, func(o *tier.Options) { o.MaxBytesInFlight, o.Lower[0].Timeout = 4000, time.Hour }) // 1000 on the way down
		b.remote.Fail(tier.ErrUnavailable)
		b.disk.Fail(tier.ErrUnavailable)
		require.NoError(t, put(b, "child", "parent", 10))
		require.NoError(t, put(b, "parent", "", 600))
		wait := make(chan struct{})
		b.disk.Do(func(c tiertest.Call) tiertest.Answer {
			if is(c, "Put") {
				return tiertest.Answer{Wait: wait}
			}
			return tiertest.Answer{}
		})
		time.Sleep(time.Minute) // the disk is back, and has the parent on its way
		var order []string
		b.remote.Do(func(c tiertest.Call) tiertest.Answer {
			if is(c, "Put") {
				order = append(order, c.Key.Name)
			}
			return tiertest.Answer{}
		})
		time.Sleep(time.Minute)
		close(wait)
		b.drain()
		require.Equal(t, []string{"parent", "child"}, order)
	})
}

// TestARestartKeepsTheLimitsOfTheBacklog: beside what was pending, the next store took up to MaxBacklog more of what
// clients have pinned, and more of a tenant than its quota.
func TestARestartKeepsTheLimitsOfTheBacklog(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, func(o *tier.Options) {
			o.Lower, o.MaxBacklog, o.Quotas = o.Lower[:1], 4000, map[string]int64{"small": 2000}
		})
		b.disk.Fail(tier.ErrUnavailable)
		commit := func(name, tenant string) {
			l := b.lease("lease " + name)
			o := object(name, "", 1000)
			o.Tenant = tenant
			placed := l.Reserve([]tier.Object{o})
			require.NoError(t, placed[0].Err)
			copy(placed[0].Bytes, content(name, 1000))
			require.NoError(t, l.Commit(keys(name))[0])
		}
		restart := func() (objects int, bytes int64) {
			killed := b.Store
			b.memory = b.memory.Reopen()
			b.options.Memory = b.memory
			require.NoError(t, killed.Close())
			b.open()
			return b.State().Backlog, b.State().BacklogBytes
		}
		for i := range 4 {
			commit(fmt.Sprint("small ", i), "small")
		}
		for range 2 {
			objects, bytes := restart()
			require.Equal(t, 4, objects, "two of them wait without a pin")
			require.EqualValues(t, 2000, bytes)
		}
		for i := range 4 {
			commit(fmt.Sprint("other ", i), "other")
		}
		for range 2 {
			objects, bytes := restart()
			require.Equal(t, 8, objects)
			require.EqualValues(t, 4000, bytes)
		}
		require.Empty(t, tier.Check(b.Store))
	})
}

// TestAPendingWriteIsStoredAgain: memory drops it as damaged, and its next owner is another tenant.
func TestAPendingWriteIsStoredAgain(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, func(o *tier.Options) { o.Lower = o.Lower[:1] })
		b.disk.Fail(tier.ErrUnavailable)
		for i, tenant := range []string{"one", "two"} {
			o := tier.Object{Key: key("x"), Size: int64(1000 - 300*i), Tenant: tenant}
			p := []tier.Put{{Object: o, Bytes: content("x", o.Size)}}
			b.Put(t.Context(), p)
			require.NoError(t, p[0].Err)
			require.Equal(t, o.Size, b.State().BacklogBytes)
			require.Empty(t, tier.Check(b.Store))
			if i == 0 {
				require.True(t, b.memory.Damage(key("x")))
				require.Error(t, b.get("x"))
			}
		}
		b.disk.Do(nil)
		b.drain()
		require.Zero(t, b.State().BacklogBytes)
	})
}

// TestDiskFullLog: a level that takes nothing is a line of the log for each cause and minute, with a count,
// and not one for each object.
func TestDiskFullLog(t *testing.T) {
	in(t, func(t *testing.T) {
		var log bytes.Buffer
		b := newBed(t, 1<<20, func(o *tier.Options) {
			o.Lower = o.Lower[:1]
			o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		})
		refuse := func(cause error, from, to int) {
			b.disk.Fail(cause)
			for i := from; i < to; i++ {
				require.NoError(t, put(b, fmt.Sprint(i), "", 16))
			}
			synctest.Wait()
			b.drain()
		}
		refuse(tier.ErrFull, 0, 500)
		require.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
		refuse(tier.ErrTooLarge, 500, 600)
		require.Equal(t, 2, strings.Count(log.String(), "\n"), "another cause is another line")
		time.Sleep(time.Minute)
		refuse(tier.ErrFull, 600, 700)
		require.Equal(t, 3, strings.Count(log.String(), "\n"), log.String())
		require.Contains(t, log.String(), "skipped=499")
		counted := int64(0)
		for _, c := range b.Counters() {
			if c.Kind == "not written" {
				counted += c.Count
			}
		}
		require.EqualValues(t, 700, counted)
	})
}
