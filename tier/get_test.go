package tier_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/tiertest"
	"github.com/ringcache/ringcache/tier"
)

func TestGetReadsThroughTheLevels(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, nil)
		require.NoError(t, put(b.memory, "m", "", 10))
		require.NoError(t, put(b.maps[0], "d", "", 20))
		require.NoError(t, put(b.maps[1], "r", "", 30))
		gets := []tier.Get{{Key: key("r")}, {Key: key("none")}, {Key: key("m")}, {Key: tier.Key{}}, {Key: key("d")}}
		b.Get(t.Context(), gets)
		require.Equal(t, content("r", 30), gets[0].Bytes)
		require.ErrorIs(t, gets[1].Err, tier.ErrNotFound)
		require.NotErrorIs(t, gets[1].Err, tier.ErrUnavailable)
		require.Equal(t, content("m", 10), gets[2].Bytes)
		require.ErrorContains(t, gets[3].Err, "empty")
		require.Equal(t, content("d", 20), gets[4].Bytes)
		require.Equal(t, "remote", b.has("r"), "what is read once is not copied up")
		require.Equal(t, 1, b.disk.Calls("Get"))
	})
}

func TestGetBringsWhatIsReadAgain(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, func(o *tier.Options) { o.Lower[0].Write = tier.Around })
		require.NoError(t, put(b.maps[1], "x", "", 1000))
		require.NoError(t, b.get("x"))
		require.NoError(t, b.get("x"))
		synctest.Wait()
		require.Equal(t, "memory disk remote", b.has("x"), "the second level got a copy, too")
		require.NoError(t, b.get("x"))
		require.Equal(t, 2, b.remote.Elements("Get"))
		require.Zero(t, b.memory.Usage().Held)
		require.Equal(t, int64(1), b.counter("remote promoted"))
		require.Equal(t, int64(2), b.counter("memory hit"), "one of them waited for the fetch")
	})
}

// TestAGetThatFetchesCountsOnce: the disk gets what is asked for three times.
func TestAGetThatFetchesCountsOnce(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, func(o *tier.Options) { o.Lower[0].PromoteAfter = 3 })
		require.NoError(t, put(b.maps[1], "x", "", 16))
		require.NoError(t, b.get("x"))
		require.NoError(t, b.get("x"))
		b.drain()
		require.Equal(t, "memory remote", b.has("x"))
		require.NoError(t, b.memory.Delete(t.Context(), keys("x"))[0], "evicted")
		require.NoError(t, b.get("x"))
		b.drain()
		require.Equal(t, "memory disk remote", b.has("x"))
	})
}

func TestNoPromotion(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, func(o *tier.Options) { o.PromoteAfter, o.Lower[0].PromoteAfter = -1, -1 })
		require.NoError(t, put(b.maps[1], "x", "", 1000))
		for range 10 {
			require.NoError(t, b.get("x"))
		}
		require.NoError(t, b.pin(b.lease("l"), "x")[0])
		require.Equal(t, "memory remote", b.has("x"))
	})
}

func TestGetOfManyReadsOnce(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, func(o *tier.Options) { o.PromoteAfter = 1 })
		require.NoError(t, put(b.maps[1], "x", "", 1000))
		wait := make(chan struct{})
		b.remote.Do(func(tiertest.Call) tiertest.Answer { return tiertest.Answer{Wait: wait} })
		var work sync.WaitGroup
		for range 50 {
			work.Go(func() { require.NoError(t, b.get("x")) })
		}
		synctest.Wait()
		close(wait)
		work.Wait()
		synctest.Wait() // the pin ends behind the last answer
		require.Equal(t, 1, b.remote.Elements("Get"))
		require.Zero(t, b.memory.Usage().Held)
	})
}

func TestGetIntoAndTo(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, nil)
		require.NoError(t, put(b.memory, "m", "", 100))
		require.NoError(t, put(b.maps[1], "r", "", 200))
		for _, name := range []string{"m", "r"} {
			var mine []byte
			var to bytes.Buffer
			refused := errors.New("refused")
			gets := []tier.Get{
				{Key: key(name), Into: func(o tier.Object) ([]byte, error) { mine = make([]byte, o.Size); return mine, nil }},
				{Key: key(name), To: &to},
				{Key: key(name), Into: func(tier.Object) ([]byte, error) { return nil, refused }},
				{Key: key(name), To: failing{refused}},
				{Key: key(name), Into: func(tier.Object) ([]byte, error) { return nil, nil }},
			}
			b.Get(t.Context(), gets)
			want := content(name, gets[0].Object.Size)
			require.NoError(t, gets[0].Err)
			require.Equal(t, want, mine)
			require.Same(t, &mine[0], &gets[0].Bytes[0])
			require.NoError(t, gets[1].Err)
			require.Equal(t, want, to.Bytes())
			require.Nil(t, gets[1].Bytes)
			require.ErrorIs(t, gets[2].Err, refused)
			require.ErrorIs(t, gets[3].Err, refused)
			require.Error(t, gets[4].Err)
		}
	})
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// TestDamageIsReadElsewhere: To gets nothing of the damaged object.
func TestDamageIsReadElsewhere(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, nil)
		for _, l := range []*tiertest.Map{b.memory, b.maps[0], b.maps[1]} {
			require.NoError(t, put(l, "x", "", 1000))
		}
		require.True(t, b.memory.Damage(key("x")))
		require.True(t, b.maps[0].Damage(key("x")))
		var to bytes.Buffer
		gets := []tier.Get{{Key: key("x"), To: &to}}
		b.Get(t.Context(), gets)
		require.NoError(t, gets[0].Err)
		require.Equal(t, content("x", 1000), to.Bytes())
		require.Equal(t, int64(1), b.counter("disk miss: corrupt"))
	})
}

func TestALevelThatIsAwayFailsNothing(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, nil)
		require.NoError(t, put(b.maps[1], "x", "", 1000))
		b.disk.Fail(tier.ErrUnavailable)
		require.NoError(t, b.get("x"))
		require.NoError(t, b.pin(b.lease("l"), "x")[0])
		require.NoError(t, put(b.Store, "y", "", 1000))
		err := b.get("nowhere")
		require.ErrorIs(t, err, tier.ErrNotFound)
		require.ErrorIs(t, err, tier.ErrUnavailable, "it may be on the level that is away")
		synctest.Wait()
		require.True(t, b.State().Levels[1].Away)
		asked := b.disk.Elements("Get")
		require.NoError(t, b.get("x"))
		require.Equal(t, asked, b.disk.Elements("Get"), "a level that is away is not asked")

		require.NoError(t, put(b.maps[0], "nowhere", "", 10))
		b.disk.Do(nil)
		time.Sleep(10 * time.Second)
		require.False(t, b.State().Levels[1].Away)
		require.NoError(t, b.get("nowhere"))
		require.Equal(t, "memory disk remote", b.has("y"), "what was pending is written")
	})
}

// TestAStoppedLevelCostsOneTimeLimit: of all requests in half an hour, only those of the first moment wait.
func TestAStoppedLevelCostsOneTimeLimit(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, func(o *tier.Options) { o.Lower[0].Timeout = time.Second })
		require.NoError(t, put(b.maps[1], "x", "", 1000))
		b.disk.Do(func(tiertest.Call) tiertest.Answer { return tiertest.Answer{Hang: true} })
		begin := time.Now()
		for i := range 1800 {
			before := time.Now()
			require.NoError(t, b.get("x"))
			if i > 0 {
				require.Less(t, time.Since(before), time.Second)
			}
			time.Sleep(time.Second)
		}
		require.Less(t, time.Since(begin), 1802*time.Second)
		require.Less(t, b.disk.Calls("Stat"), 500, "probes have pauses between them")
		require.Greater(t, b.disk.Calls("Stat"), 100)
	})
}

// TestShortDeadlinesFindAStoppedLevel: callers that give up earlier than the level's time limit must not find
// it again and again.
func TestShortDeadlinesFindAStoppedLevel(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, func(o *tier.Options) { o.Lower[0].Timeout = 2 * time.Second })
		require.NoError(t, put(b.maps[1], "x", "", 1000))
		b.disk.Do(func(tiertest.Call) tiertest.Answer { return tiertest.Answer{Hang: true} })
		failed := 0
		for range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			g := []tier.Get{{Key: key("x")}}
			if b.Get(ctx, g); g[0].Err != nil {
				require.ErrorIs(t, g[0].Err, context.DeadlineExceeded)
				failed++
			}
			cancel()
		}
		require.LessOrEqual(t, failed, 25)
		time.Sleep(3 * time.Second) // for the probe
		require.True(t, b.State().Levels[1].Away)
	})
}

// TestAnErrorOfIntoIsNotTheLevels: the level answered at once.
func TestAnErrorOfIntoIsNotTheLevels(t *testing.T) {
	for _, mine := range []error{context.DeadlineExceeded, tier.ErrUnavailable} {
		in(t, func(t *testing.T) {
			b := newBed(t, 1<<20, nil)
			require.NoError(t, put(b.maps[0], "x", "", 16))
			g := []tier.Get{{Key: key("x"), Into: func(tier.Object) ([]byte, error) { return nil, mine }}}
			b.Get(t.Context(), g)
			require.ErrorIs(t, g[0].Err, mine)
			require.False(t, b.State().Levels[1].Away)
			synctest.Wait()
			require.Zero(t, b.disk.Calls("Stat"), "no reason to probe it")
		})
	}
}

// TestALevelThatCantWriteIsRead: as a disk that became read-only, or a server without memory.
func TestALevelThatCantWriteIsRead(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, func(o *tier.Options) { o.PromoteAfter = -1 })
		require.NoError(t, put(b.maps[0], "x", "", 1000))
		b.disk.Do(func(c tiertest.Call) tiertest.Answer {
			if is(c, "Put") {
				return tiertest.Answer{Err: tier.ErrUnavailable}
			}
			return tiertest.Answer{}
		})
		require.NoError(t, put(b.Store, "y", "", 1000))
		for range 600 {
			require.NoError(t, b.get("x"))
			time.Sleep(100 * time.Millisecond)
		}
		require.Zero(t, b.counter("disk away: unavailable"))
		require.Equal(t, 1, b.State().Backlog)
		require.Less(t, b.disk.Calls("Put"), 30, "with pauses")
		b.disk.Do(nil)
		_, err := b.Drain(t.Context())
		require.NoError(t, err)
		require.Equal(t, "memory disk remote", b.has("y"))
	})
}

// TestAHangingLevelLeavesWorkersToOthers: what the disk has is fetched while everything that the remote level
// is asked for hangs.
func TestAHangingLevelLeavesWorkersToOthers(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, nil)
		b.remote.Do(func(tiertest.Call) tiertest.Answer { return tiertest.Answer{Hang: true} })
		l := b.lease("l")
		for i := range 50 {
			l.Pin(keys(string(rune('A' + i))))
		}
		for _, name := range []string{"x", "y", "z"} {
			require.NoError(t, put(b.maps[0], name, "", 1000))
			begin := time.Now()
			require.NoError(t, b.pin(l, name)[0])
			require.NoError(t, b.get(name))
			require.Zero(t, time.Since(begin))
		}
	})
}

func TestNegativeCache(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, nil)
		require.ErrorIs(t, b.get("x"), tier.ErrNotFound)
		asked := b.remote.Elements("Get")
		require.ErrorIs(t, b.get("x"), tier.ErrNotFound)
		require.ErrorIs(t, b.lease("l").Pin(keys("x"))[0].Err, tier.ErrNotFound)
		synctest.Wait()
		require.Equal(t, asked, b.remote.Elements("Get"))

		require.NoError(t, put(b.Store, "x", "", 10))
		require.NoError(t, b.get("x"), "it was stored here")

		require.ErrorIs(t, b.get("y"), tier.ErrNotFound)
		require.NoError(t, put(b.maps[1], "y", "", 10))
		require.ErrorIs(t, b.get("y"), tier.ErrNotFound, "it was stored elsewhere")
		time.Sleep(2 * time.Second)
		require.NoError(t, b.get("y"))
	})
}

// TestNegativeCacheAndARacingPut: a lookup that began before a Put, and ends after it, must not leave a miss.
func TestNegativeCacheAndARacingPut(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, func(o *tier.Options) { o.Lower[0].Write, o.Lower[1].Write = tier.Through, tier.Around })
		wait := make(chan struct{})
		b.remote.Do(func(tiertest.Call) tiertest.Answer { return tiertest.Answer{Wait: wait} })
		var work sync.WaitGroup
		work.Go(func() { _ = b.get("x") })
		l := b.lease("l")
		require.ErrorIs(t, l.Pin(keys("x"))[0].Err, tier.ErrPending)
		synctest.Wait()
		require.NoError(t, put(b.Store, "x", "", 10))
		require.NoError(t, b.memory.Delete(t.Context(), keys("x"))[0], "evicted")
		close(wait)
		work.Wait()
		synctest.Wait()
		require.NoError(t, b.get("x"))
	})
}

func TestNegativeCacheIsBounded(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, nil)
		for range 18 {
			gets := make([]tier.Get, 1000)
			for i := range gets {
				gets[i].Key = key(time.Now().String() + string(rune(i+1)))
			}
			b.Get(t.Context(), gets)
			time.Sleep(time.Millisecond)
		}
		require.LessOrEqual(t, tier.Missing(b.Store), 1<<14)
	})
}

func TestGetIsCancelled(t *testing.T) {
	for _, promote := range []int{1, -1} {
		in(t, func(t *testing.T) {
			b := newBed(t, 1<<20, func(o *tier.Options) { o.PromoteAfter, o.Lower[0].Timeout = promote, time.Hour })
			b.disk.Do(func(tiertest.Call) tiertest.Answer { return tiertest.Answer{Hang: true} })
			ctx, cancel := context.WithCancel(t.Context())
			gets := []tier.Get{{Key: key("x")}}
			done := make(chan struct{})
			go func() { b.Get(ctx, gets); close(done) }()
			synctest.Wait()
			cancel()
			<-done
			require.ErrorIs(t, gets[0].Err, context.Canceled)
			synctest.Wait()
			require.Zero(t, b.State().Fetches, "nobody else has interest")
			require.False(t, b.State().Levels[1].Away)
		})
	}
}

// TestAMissWhileALevelIsAwayIsNotRemembered: the level is back long before Options.NegativeTTL is over, and
// has the object.
func TestAMissWhileALevelIsAwayIsNotRemembered(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, nil)
		require.NoError(t, put(b.maps[1], "x", "", 100))
		b.remote.Fail(tier.ErrUnavailable)
		err := b.get("x")
		require.ErrorIs(t, err, tier.ErrNotFound)
		require.ErrorIs(t, err, tier.ErrUnavailable)
		b.remote.Do(nil)
		time.Sleep(200 * time.Millisecond) // the next probe is over
		require.False(t, b.State().Levels[2].Away)
		require.NoError(t, b.get("x"))
	})
}

// TestACallThatHangsTakesTheLevelAwayAtOnce: nobody else pays the time limit, not even until a probe has failed.
func TestACallThatHangsTakesTheLevelAwayAtOnce(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, func(o *tier.Options) { o.Lower[1].Timeout = time.Second })
		require.NoError(t, put(b.maps[1], "x", "", 100))
		b.remote.Do(func(tiertest.Call) tiertest.Answer { return tiertest.Answer{Hang: true} })
		require.ErrorIs(t, b.get("x"), tier.ErrUnavailable)
		require.True(t, b.State().Levels[2].Away)
		before := time.Now()
		require.ErrorIs(t, b.get("x"), tier.ErrUnavailable)
		require.Zero(t, time.Since(before))
		b.remote.Do(nil)
	})
}

// TestStoredBelowAfterAMiss: what was looked up in vain, and was stored then without room in memory, is there at once.
func TestStoredBelowAfterAMiss(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1000, nil)
		require.ErrorIs(t, b.get("x"), tier.ErrNotFound)
		require.NoError(t, put(b, "x", "", 5000))
		require.Equal(t, "disk remote", b.has("x"))
		require.NoError(t, b.get("x"))
	})
}
