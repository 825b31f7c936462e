//go:build linux

package segment_test

import (
	"io/fs"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/shmring/segment"
)

// A segment without a writer is either adopted or removed, and by one only.
func TestSweepAndAdoptRace(t *testing.T) {
	dir := t.TempDir()
	adopted, removed := 0, 0
	for n := range 200 {
		o := abandoned(t, dir, "a", "")
		start := make(chan struct{})
		var wg sync.WaitGroup
		var segs [2]*segment.Segment
		var errs [2]error
		var swept [2][]segment.Swept
		for i := range 2 {
			wg.Go(func() {
				<-start
				if i > 0 && n%20 > 0 { // the second one would wait for the first
					errs[i] = segment.ErrOwned
					return
				}
				segs[i], errs[i] = segment.Adopt(o)
			})
			wg.Go(func() {
				<-start
				for range n % 8 * 30 { // so that adopters win too
					runtime.Gosched()
				}
				if n%3 == 0 { // a sweep that only lists disturbs nobody
					_, _ = segment.Sweep(segment.SweepOptions{Dir: dir, Prefix: "a"})
				}
				got, err := segment.Sweep(segment.SweepOptions{Dir: dir, Prefix: "a", Remove: true})
				if err == nil {
					swept[i] = got
				}
			})
		}
		close(start)
		wg.Wait()
		winners := 0
		for i := range 2 {
			for _, s := range swept[i] {
				require.NoError(t, s.Err)
				if s.Removed {
					winners++
					removed++
				}
			}
			if errs[i] != nil {
				continue
			}
			winners++
			adopted++
			require.Equal(t, []string{"a", "a.ctl"}, filesIn(t, dir))
			require.NoError(t, segs[i].Destroy())
		}
		require.Equal(t, 1, winners, "%v %v", errs, swept)
		require.Empty(t, filesIn(t, dir))
	}
	t.Logf("adopted %d times, removed %d times", adopted, removed)
}

// Whoever makes a segment while it is swept keeps it, and what ends at the same
// moment is removed whole: a segment without its sidecar would stay for ever.
func TestSweepAndCreateRace(t *testing.T) {
	dir := t.TempDir()
	stop := make(chan struct{})
	var sweeper sync.WaitGroup
	for range 2 {
		sweeper.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				got, err := segment.Sweep(segment.SweepOptions{Dir: dir, Prefix: "a", AnyOwner: true, Remove: true})
				if err != nil {
					t.Error(err)
					return
				}
				for _, s := range got {
					if s.Err != nil {
						t.Error(s.Err)
					}
				}
			}
		})
	}
	o := segment.Options{Name: "a", Dir: dir, RingSize: 4096, Sidecar: sidecarOptions()}
	for range 500 {
		s, err := segment.Create(o)
		if err != nil { // the last one is being swept
			require.ErrorIs(t, err, fs.ErrExist)
			continue
		}
		require.FileExists(t, filepath.Join(dir, "a"))
		require.NoError(t, s.Close())
	}
	close(stop)
	sweeper.Wait()
	_, err := segment.Sweep(segment.SweepOptions{Dir: dir, Prefix: "a", AnyOwner: true, Remove: true})
	require.NoError(t, err)
	require.Empty(t, filesIn(t, dir))
}
