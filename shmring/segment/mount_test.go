//go:build linux

package segment_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ringcache/ringcache/fuzz/fault"
	"github.com/ringcache/ringcache/internal/shmfile"
	"github.com/ringcache/ringcache/shmring/memory"
	"github.com/ringcache/ringcache/shmring/segment"
)

func empty(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestSmallMount(t *testing.T) {
	if !fault.InChild(t, fault.OwnMounts()) {
		return
	}
	for name, dir := range map[string]string{"elsewhere": t.TempDir(), "shm": "/dev/shm"} {
		t.Run(name, func(t *testing.T) {
			fault.Mount(t, dir, "size=64m")
			_, err := segment.Create(segment.Options{Name: "big", Dir: dir, RingSize: 128 * mib})
			require.ErrorIs(t, err, segment.ErrNoSpace)
			require.ErrorIs(t, err, syscall.ENOSPC)
			var space *shmfile.SpaceError
			require.ErrorAs(t, err, &space)
			require.False(t, space.Cgroup)
			require.Equal(t, dir, space.Where)
			require.Equal(t, int64(128*mib), space.Need)
			require.Equal(t, int64(64*mib), space.Have)
			require.Equal(t, int64(64*mib), space.Size)
			require.Regexp(t, "remount,size=128m|--shm-size=128m|--tmpfs .*=128m|sizeLimit: 128Mi", err.Error())
			t.Log(err)
			empty(t, dir)

			// 32 MiB, and then all that the mount has, are really there.
			for _, size := range []int{32 * mib, 64 * mib} {
				s, err := segment.Create(segment.Options{Name: "fits", Dir: dir, RingSize: size})
				require.NoError(t, err)
				for i := 0; i < size; i += 4096 {
					s.Ring()[i] = 1
				}
				_, err = segment.Create(segment.Options{Name: "more", Dir: dir, RingSize: 32*mib + 1})
				require.ErrorIs(t, err, segment.ErrNoSpace)
				require.NoError(t, s.Destroy())
				empty(t, dir)
			}
		})
	}
}

// All pass the look at the free space and take it piece by piece.
func TestCreatesRaceForTheLastSpace(t *testing.T) {
	if !fault.InChild(t, fault.OwnMounts()) {
		return
	}
	dir := t.TempDir()
	fault.Mount(t, dir, "size=64m")
	for _, racers := range []int{2, 3} {
		for range 20 {
			var wg sync.WaitGroup
			made, errs := make([]*segment.Segment, racers), make([]error, racers)
			for i := range racers {
				wg.Go(func() {
					made[i], errs[i] = segment.Create(segment.Options{Name: fmt.Sprint("racer", i), Dir: dir, RingSize: 40 * mib})
				})
			}
			wg.Wait()
			won := 0
			for i, s := range made {
				if s == nil {
					require.ErrorIs(t, errs[i], segment.ErrNoSpace)
					require.ErrorAs(t, errs[i], new(*shmfile.SpaceError))
					continue
				}
				won++
				left, err := os.ReadDir(dir)
				require.NoError(t, err)
				require.Len(t, left, 1, "nothing of the losers")
				for at := 0; at < len(s.Ring()); at += 4096 {
					s.Ring()[at] = 1
				}
				require.NoError(t, s.Destroy())
			}
			require.Equal(t, 1, won, "%v", errs)
			empty(t, dir)
			var st unix.Statfs_t
			require.NoError(t, unix.Statfs(dir, &st))
			require.Equal(t, st.Blocks, st.Bfree)
		}
	}
}

func TestHugePagesOfAMountThatHasThem(t *testing.T) {
	if !fault.InChild(t, fault.OwnMounts()) {
		return
	}
	for _, huge := range []string{"never", "advise", "within_size", "always"} {
		t.Run(huge, func(t *testing.T) {
			dir := t.TempDir()
			fault.Mount(t, dir, "size=64m,huge="+huge)
			s, err := segment.Create(segment.Options{Name: "huge", Dir: dir, RingSize: 16*mib + 100, DataOffset: 32})
			require.NoError(t, err)
			_, _ = rand.Read(s.Bytes())
			before := bytes.Clone(s.Bytes())
			r, err := s.Prepare(t.Context(), memory.Options{HugePages: true})
			require.NoError(t, err)
			t.Logf("huge=%s\n%v", huge, r)
			require.True(t, bytes.Equal(before, s.Bytes()))
			require.True(t, r.Prefault.Obtained)
			require.LessOrEqual(t, r.HugePages.Obtained, r.HugePages.Possible)
			require.Equal(t, r.HugePages.Obtained == r.HugePages.Possible && r.HugePages.Possible > 0, r.HugePages.Reason == "")
			require.NoError(t, s.Destroy())
		})
	}
}
