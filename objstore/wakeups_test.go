package objstore

import (
	"context"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A reservation that is given up wakes who waits for its bytes, at once.
func TestDiscardWakesWhoWaitsForTheBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t, Options{RingSize: 64 << 10, Readers: 1, Policy: Pool, MaxObjectSize: 60 << 10})
		res, err := s.Reserve("big", image(40<<10, 1))
		require.NoError(t, err)
		done := make(chan error, 1)
		go func() {
			_, err := s.PutContext(context.Background(), "k", image(40<<10, 1), PutOptions{})
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
		s := newStore(t, Options{RingSize: 64 << 10, Readers: 1, Policy: Pool, MaxObjectSize: 60 << 10, MaxObjects: 1})
		res, err := s.Reserve("big", image(100, 1))
		require.NoError(t, err)
		done := make(chan error, 1)
		go func() {
			_, err := s.PutContext(context.Background(), "k", image(100, 1), PutOptions{})
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
		s := newStore(t, Options{RingSize: 64 << 10, Readers: 1, MaxObjectSize: 60 << 10, Policy: FIFO})
		_, err := s.Put("big", image(40<<10, 1))
		require.NoError(t, err)
		done := make(chan error, 1)
		go func() {
			_, err := s.PutContext(context.Background(), "k", image(40<<10, 1), PutOptions{})
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

// A retired object is worth nothing, whatever became of the sidecar.
func TestRetiredObjectLeavesTheEvictionPolicyWithoutSidecar(t *testing.T) {
	w, dir := inFolder(t, Pool)
	r, err := w.Begin("r")
	require.NoError(t, err)
	_, err = r.Put("k", image(100, 1))
	require.NoError(t, err)
	require.NoError(t, os.Truncate(dir+"/s.ctl", 0))
	w.Retire("k")
	for _, o := range w.objects {
		require.False(t, o.state == retired && o.cached != nil)
	}
	require.NoError(t, w.Abandon())
}

// Who waits for a quota passes who waits for room only as far as those who do not wait.
func TestWaitersForAQuotaDoNotPassForEver(t *testing.T) {
	for _, waits := range []bool{false, true} {
		t.Run(fmt.Sprint("tenant waits ", waits), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore(t, Options{RingSize: 80 << 10, Readers: 1, Policy: Pool, MaxObjectSize: 70 << 10, Quotas: map[string]int64{"t": 50 << 10}})
				var open []*Request
				put := func(i int, ctx context.Context) error {
					r := begin(t, s.Writer, fmt.Sprint("r", i))
					_, err := r.PutContext(ctx, fmt.Sprint("k", i), image(16000, 1), PutOptions{Tenant: "t"})
					if err != nil {
						r.Rollback()
						return err
					}
					open = append(open, r)
					return nil
				}
				require.NoError(t, put(0, noWait))
				require.NoError(t, put(1, noWait))
				require.NoError(t, put(1000, noWait))
				got := make(chan error, 1)
				go func() {
					r := begin(t, s.Writer, "big")
					_, err := r.PutContext(context.Background(), "big", image(60000, 1), PutOptions{})
					r.Rollback()
					got <- err
				}()
				synctest.Wait()
				waited := 0
				for i := 2; i < 500; i++ {
					done := make(chan error, 1)
					oldest := open[0]
					open = open[1:]
					if waits {
						go func() { done <- put(i, context.Background()) }()
						synctest.Wait() // it waits for the quota
						oldest.Rollback()
						synctest.Wait()
					} else {
						oldest.Rollback()
						done <- put(i, noWait)
					}
					select {
					case err := <-done:
						if err != nil {
							require.ErrorIs(t, err, ErrFull)
						} else {
							waited++
						}
					default: // it waits behind the big one
						for _, r := range open {
							r.Rollback()
						}
						open = nil
						require.NoError(t, <-got)
						require.NoError(t, <-done)
						got <- nil
					}
					synctest.Wait()
					if len(got) > 0 || len(open) == 0 {
						break
					}
				}
				n := len(got)
				for _, r := range open {
					r.Rollback()
				}
				require.NoError(t, <-got)
				for _, r := range open {
					r.Rollback()
				}
				require.Equal(t, 1, n, "%d objects passed who waits for room", waited)
			})
		})
	}
}
