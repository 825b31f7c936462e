package tier_test

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/tiertest"
	"github.com/ringcache/ringcache/tier"
)

func TestStatAndList(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, nil)
		require.NoError(t, put(b.Store, "x", "", 10))
		require.NoError(t, put(b.maps[1], "y", "x", 20))
		require.NoError(t, put(b.memory, "z", "", 30))
		synctest.Wait()
		found := b.Stat(t.Context(), keys("x", "y", "z", "nowhere"))
		require.Equal(t, []string{"memory", "disk", "remote"}, found[0].Levels)
		require.Equal(t, []string{"remote"}, found[1].Levels)
		require.Equal(t, object("y", "x", 20), found[1].Object)
		require.Equal(t, []string{"memory"}, found[2].Levels)
		require.ErrorIs(t, found[3].Err, tier.ErrNotFound)
		require.NotErrorIs(t, found[3].Err, tier.ErrUnavailable)

		var names []string
		for o, err := range b.List(t.Context(), "s") {
			require.NoError(t, err)
			names = append(names, o.Name)
		}
		require.ElementsMatch(t, []string{"x", "y", "z"}, names)
		for range b.List(t.Context(), "") {
			break
		}
		for range b.List(t.Context(), "another") {
			t.Fatal("another space is empty")
		}

		b.disk.Fail(tier.ErrUnavailable)
		found = b.Stat(t.Context(), keys("x", "nowhere else"))
		require.Equal(t, []string{"memory", "remote"}, found[0].Levels)
		require.NoError(t, found[0].Err)
		require.ErrorIs(t, found[1].Err, tier.ErrUnavailable)
		names = nil
		var last error
		for o, err := range b.List(t.Context(), "s") {
			if last = err; err == nil {
				names = append(names, o.Name)
			}
		}
		require.ElementsMatch(t, []string{"x", "y", "z"}, names)
		require.ErrorIs(t, last, tier.ErrUnavailable)
	})
}

// TestCloseWhileAListIsRead: a loop over List that calls the store must not keep Close waiting for ever.
func TestCloseWhileAListIsRead(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, nil)
		for _, name := range []string{"x", "y", "z"} {
			require.NoError(t, put(b.memory, name, "", 10))
		}
		closed := make(chan struct{})
		n := 0
		for o, err := range b.List(t.Context(), "") {
			require.NoError(t, err)
			if n++; n == 1 {
				require.NoError(t, b.get(o.Name))
				go func() {
					b.Close()
					close(closed)
				}()
				synctest.Wait()
			}
			if n > 1 {
				require.ErrorContains(t, b.get(o.Name), "closed")
			}
		}
		<-closed
		require.Equal(t, 3, n)
	})
}

func TestEvents(t *testing.T) {
	in(t, func(t *testing.T) {
		var mu sync.Mutex
		var lines []string
		var log strings.Builder
		b := newBed(t, 1<<20, func(o *tier.Options) {
			o.Logger = slog.New(slog.NewTextHandler(&log, nil))
			o.Events = func(e tier.Event) {
				mu.Lock()
				defer mu.Unlock()
				lines = append(lines, strings.TrimRight(strings.Join([]string{e.Level, e.Kind, e.Key.Name, e.Cause}, " "), " "))
			}
		})
		require.NoError(t, put(b.Store, "x", "", 10))
		synctest.Wait()
		require.NoError(t, b.Delete(t.Context(), keys("x"))[0])
		require.NoError(t, put(b.maps[1], "y", "", 10))
		require.NoError(t, b.pin(b.lease("l"), "y")[0])
		b.disk.Fail(tier.ErrUnavailable)
		require.NoError(t, put(b.Store, "z", "", 10))
		synctest.Wait()
		b.disk.Do(nil)
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		require.ElementsMatch(t, []string{
			"disk written x", "remote written x", "memory deleted x", "remote promoted y", "disk away  unavailable",
			"remote written z", "disk back", "disk written z",
		}, lines)
		require.Contains(t, log.String(), "a level is away")
		require.Contains(t, log.String(), "a level is back")
		for _, name := range []string{"disk written", "remote promoted", "memory deleted", "disk away: unavailable", "disk back"} {
			require.NotZero(t, b.counter(name), name)
		}
	})
}

// TestSlowEventsKeepNobodyWaiting: they are dropped, and counted.
func TestSlowEventsKeepNobodyWaiting(t *testing.T) {
	in(t, func(t *testing.T) {
		wait := make(chan struct{})
		b := newBed(t, 1<<20, func(o *tier.Options) { o.Events = func(tier.Event) { <-wait } })
		for i := range 2000 {
			require.NoError(t, put(b.Store, string(rune('a'+i)), "", 1))
		}
		_, err := b.Drain(t.Context())
		require.NoError(t, err)
		require.Equal(t, int64(4000-1024-1), b.counter(" dropped event"))
		close(wait)
	})
}

func TestValidate(t *testing.T) {
	good := newBed(t, 0, nil).options
	for name, c := range map[string]struct {
		change func(*tier.Options)
		want   string
	}{
		"no memory":       {func(o *tier.Options) { o.Memory = nil }, "needs a memory level"},
		"no level":        {func(o *tier.Options) { o.Lower[1].Level = nil }, "is nil"},
		"twice":           {func(o *tier.Options) { o.Lower[1].Level = o.Lower[0].Level }, `"disk"`},
		"memory twice":    {func(o *tier.Options) { o.Lower[1].Level = o.Memory }, `"memory"`},
		"policy":          {func(o *tier.Options) { o.Lower[0].Write = 3 }, "policy 3"},
		"negative policy": {func(o *tier.Options) { o.Lower[0].Write = -1 }, "policy -1"},
		"timeout":         {func(o *tier.Options) { o.Lower[0].Timeout = -1 }, "time limit"},
		"many":            {func(o *tier.Options) { o.Lower = make([]tier.Lower, 17) }, "most is 16"},
		"one call":        {func(o *tier.Options) { o.MaxCalls = 1 }, "least is 2"},
		"calls":           {func(o *tier.Options) { o.MaxCalls = -1 }, "least is 2"},
		"in flight":       {func(o *tier.Options) { o.MaxBytesInFlight = -1 }, "MaxBytesInFlight"},
		"pending":         {func(o *tier.Options) { o.MaxFetches = -1 }, "MaxFetches"},
		"backlog":         {func(o *tier.Options) { o.MaxBacklog = -1 }, "MaxBacklog"},
		"negative":        {func(o *tier.Options) { o.NegativeTTL = -1 }, "NegativeTTL"},
		"promoted":        {func(o *tier.Options) { o.PromotedFor = -1 }, "PromotedFor"},
		"quota":           {func(o *tier.Options) { o.Quotas = map[string]int64{"a": -1} }, `tenant "a"`},
	} {
		t.Run(name, func(t *testing.T) {
			o := good
			o.Lower = append([]tier.Lower(nil), good.Lower...)
			c.change(&o)
			require.ErrorContains(t, o.Validate(), c.want)
			_, err := tier.Open(t.Context(), o)
			require.ErrorContains(t, err, c.want)
		})
	}
	require.NoError(t, good.Validate())
}

// TestTinyPromotedFor: half of it is no time at all.
func TestTinyPromotedFor(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, func(o *tier.Options) { o.PromotedFor = 1 })
		time.Sleep(time.Second)
		require.NoError(t, put(b, "x", "", 16))
	})
}

func TestLeasesOfTheStore(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 0, nil)
		b.lease("mine")
		require.Len(t, b.Leases(), 1)
		require.Equal(t, "mine", b.Leases()[0].ID)
		for _, o := range []tier.LeaseOptions{{ID: "ringcache store: promoted"}, {ID: "ringcache store: pending writes"}, {ID: "ringcache store: of a later version"}, {ID: "a", Owner: "ringcache store"}} {
			_, err := b.Lease(t.Context(), o)
			require.ErrorContains(t, err, "the store's own")
		}
	})
}

// TestLevelThatTakesNoWritesIsLogged: once, though writes are tried again and again, and once when it takes them again.
func TestLevelThatTakesNoWritesIsLogged(t *testing.T) {
	in(t, func(t *testing.T) {
		var log strings.Builder
		b := newBed(t, 1<<20, func(o *tier.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		b.disk.Do(func(c tiertest.Call) tiertest.Answer {
			answers := map[string]tiertest.Answer{"Put": {Err: tier.ErrUnavailable}}
			return answers[c.Method]
		})
		require.NoError(t, put(b.Store, "x", "", 10))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, 1, strings.Count(log.String(), "a level can be read and takes no writes"), log.String())
		require.Contains(t, log.String(), "level=disk")
		require.NotContains(t, log.String(), "is away")
		b.disk.Do(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, 1, strings.Count(log.String(), "a level takes writes again"), log.String())
	})
}
