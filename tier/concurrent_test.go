package tier_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/tiertest"
	"github.com/ringcache/ringcache/tier"
)

var clients = flag.Int("clients", 400, "operations of each client in TestManyClients")

// TestManyClients: clients with leases, readers and deletions at once, while one level fails on and off. What
// is on the level that never fails can always be read.
func TestManyClients(t *testing.T) {
	b := newBed(t, 40_000, func(o *tier.Options) {
		o.Lower[0].Timeout = 5 * time.Millisecond
		o.MaxBytesInFlight = 20_000
		o.NegativeTTL = time.Millisecond
		o.PromotedFor = 50 * time.Millisecond
		o.Events = func(tier.Event) {}
	})
	var safe []string // on the level that never fails; nobody deletes them
	for i := range 40 {
		safe = append(safe, fmt.Sprint("safe", i))
		require.NoError(t, put(b.maps[1], safe[i], "", int64(1000+i)))
	}
	names := chain(t, b.maps[1], "c", 20, 500)
	safe = append(safe, names...)
	stop := make(chan struct{})
	var fail, work sync.WaitGroup
	fail.Go(func() { failOnAndOff(b.disk, stop) })
	var wrong atomic.Int64
	check := func(name string, o tier.Object, bytes []byte) {
		if string(bytes) != string(content(name, o.Size)) {
			wrong.Add(1)
		}
	}
	for c := range 8 {
		work.Go(func() {
			r := rand.New(rand.NewPCG(uint64(c), 1))
			for i := range *clients {
				name := safe[r.IntN(len(safe))]
				own := fmt.Sprintf("client %d %d", c, i%20)
				switch r.IntN(8) {
				case 0, 1:
					g := []tier.Get{{Key: key(name)}}
					b.Get(context.Background(), g)
					if !assert.NoError(t, g[0].Err) {
						return
					}
					check(name, g[0].Object, g[0].Bytes)
				case 2, 3:
					clientPins(t, b, fmt.Sprint(c), append([]string{name}, names[:r.IntN(20)]...), check)
				case 4:
					_ = put(b.Store, own, "", int64(500+i%20))
				case 5:
					clientStores(t, b, fmt.Sprint(c), own, int64(500+i%20))
				case 6:
					b.Delete(context.Background(), keys(own))
				case 7:
					ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
					b.Prefetch(ctx, keys(name, own), r.IntN(3))
					g := []tier.Get{{Key: key(own)}}
					if b.Get(ctx, g); g[0].Err == nil {
						check(own, g[0].Object, g[0].Bytes)
					}
					cancel()
				}
			}
		})
	}
	work.Wait()
	close(stop)
	fail.Wait()
	require.Zero(t, wrong.Load(), "other bytes")
	b.disk.Do(nil)
	left, err := b.Drain(t.Context())
	require.Empty(t, left)
	if !isMissed(err) {
		require.NoError(t, err)
	}
	require.Empty(t, tier.Check(b.Store))
	require.Eventually(t, func() bool { return b.State().Fetches == 0 && b.memory.Usage().Held == 0 }, 5*time.Minute, time.Millisecond)
	up, down := tier.PeakInFlight(b.Store)
	require.LessOrEqual(t, up, int64(15_000))
	require.LessOrEqual(t, down, int64(5_000))
}

func failOnAndOff(l *tiertest.Fault, stop chan struct{}) {
	for i := 0; ; i++ {
		switch i % 4 {
		case 0:
			l.Fail(tier.ErrUnavailable)
		case 1:
			l.Do(func(c tiertest.Call) tiertest.Answer { return tiertest.Answer{Hang: c.N%5 == 0} })
		case 2:
			l.Do(func(c tiertest.Call) tiertest.Answer {
				return tiertest.Answer{Damage: c.N%5 == 0, Lose: c.N%5 == 1}
			})
		default:
			l.Do(nil)
		}
		select {
		case <-stop:
			return
		case <-time.After(20 * time.Millisecond): // how long a fault lasts
		}
	}
}

// clientPins asks until nothing is pending, as an engine would.
func clientPins(t *testing.T, b *bed, id string, names []string, check func(string, tier.Object, []byte)) {
	l, err := b.Lease(context.Background(), tier.LeaseOptions{ID: id, Owner: "test"})
	if !assert.NoError(t, err) {
		return
	}
	defer l.Release()
	for ask := true; ask; {
		ask = false
		for i, p := range l.Pin(keys(names...)) {
			switch {
			case p.Err == nil:
				check(names[i], p.Object, p.Bytes)
			case errors.Is(p.Err, tier.ErrPending):
				ask = true
			case !errors.Is(p.Err, tier.ErrNotFound) && !errors.Is(p.Err, tier.ErrFull):
				assert.NoError(t, p.Err)
			}
		}
		time.Sleep(100 * time.Microsecond) // an engine's turn
	}
}

func clientStores(t *testing.T, b *bed, id, name string, size int64) {
	l, err := b.Lease(context.Background(), tier.LeaseOptions{ID: id, Owner: "test"})
	if !assert.NoError(t, err) {
		return
	}
	defer l.Release()
	placed := l.Reserve([]tier.Object{object(name, "", size)})
	if placed[0].Err != nil {
		return
	}
	copy(placed[0].Bytes, content(name, size))
	assert.NoError(t, l.Commit(keys(name))[0])
}
