package objstore

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A reservation that is given up wakes who waits for its bytes, at once.
func TestDiscardWakesWhoWaitsForTheBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStoreOf(t, pool, Options{RingSize: 64 << 10, Readers: 1, MaxObjectSize: 60 << 10})
		res, err := s.Reserve("big", image(40<<10, 1))
		require.NoError(t, err)
		done := make(chan error, 1)
		waits := begin(t, s, "waits")
		defer waits.Rollback()
		go func() {
			_, err := waits.Request.Put("k", image(40<<10, 1), PutOptions{Wait: context.Background()})
			done <- err
		}()
		time.Sleep(time.Second) // the poll is at its longest
		synctest.Wait()
		at := time.Now()
		res.Discard()
		require.NoError(t, <-done)
		require.Zero(t, time.Since(at))
	})
}

// And who waits for its entry in the sidecar.
func TestDiscardWakesWhoWaitsForTheEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStoreOf(t, pool, Options{RingSize: 64 << 10, Readers: 1, MaxObjectSize: 60 << 10, MaxObjects: 1})
		res, err := s.Reserve("big", image(100, 1))
		require.NoError(t, err)
		done := make(chan error, 1)
		waits := begin(t, s, "waits")
		defer waits.Rollback()
		go func() {
			_, err := waits.Request.Put("k", image(100, 1), PutOptions{Wait: context.Background()})
			done <- err
		}()
		time.Sleep(time.Second)
		synctest.Wait()
		at := time.Now()
		res.Discard()
		require.NoError(t, <-done)
		require.Zero(t, time.Since(at))
	})
}

// Clear of a FIFO store wakes who waits.
func TestClearWakesWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t, Options{RingSize: 64 << 10, Readers: 1, MaxObjectSize: 60 << 10})
		_, err := s.Put("big", image(40<<10, 1))
		require.NoError(t, err)
		done := make(chan error, 1)
		waits := begin(t, s, "waits")
		defer waits.Rollback()
		go func() {
			_, err := waits.Request.Put("k", image(40<<10, 1), PutOptions{Wait: context.Background()})
			done <- err
		}()
		time.Sleep(time.Second)
		synctest.Wait()
		at := time.Now()
		require.NoError(t, s.Clear())
		require.NoError(t, <-done)
		require.Zero(t, time.Since(at))
	})
}

// Who waits for a quota passes who waits for room only as far as those who do not wait.
func TestWaitersForAQuotaDoNotPassForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		s := newStoreOf(t, pool, Options{RingSize: 80 << 10, Readers: 1, MaxObjectSize: 70 << 10, Quotas: map[string]int64{"t": 50 << 10}})
		start := func(i, bytes int, tenant string) (request, <-chan error) {
			r, done := begin(t, s, fmt.Sprint("r", i)), make(chan error, 1)
			go func() {
				_, err := r.Request.Put(fmt.Sprint("k", i), image(bytes, 1), PutOptions{Tenant: tenant, Wait: ctx})
				done <- err
			}()
			synctest.Wait()
			return r, done
		}
		var open []request
		for i := range 3 { // as much as the quota allows
			r, done := start(i, 16000, "t")
			require.NoError(t, <-done)
			open = append(open, r)
		}
		large, got := start(3, 60000, "")
		passed := 0
		for i := 4; len(got) == 0; i++ {
			require.Less(t, passed, 50, "objects passed who waits for room")
			r, done := start(i, 16000, "t") // it waits for the quota
			open[0].Rollback()
			open = append(open[1:], r)
			synctest.Wait()
			if len(done) == 0 { // it waits behind the large one now
				for _, o := range open[:len(open)-1] {
					o.Rollback()
				}
				require.NoError(t, <-got)
				large.Rollback()
				require.NoError(t, <-done)
				r.Rollback()
				return
			}
			require.NoError(t, <-done)
			passed++
		}
		require.NoError(t, <-got)
		for _, o := range append(open, large) {
			o.Rollback()
		}
	})
}
