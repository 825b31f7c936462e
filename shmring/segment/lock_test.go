//go:build linux

package segment_test

import (
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/shmring/segment"
)

// A child process has every descriptor of its parent between fork and exec. The
// writer's lock must not stay in them.
func TestCloseFreesTheLockThatAChildInherits(t *testing.T) {
	for name, end := range map[string]func(*segment.Segment) error{"close": (*segment.Segment).Close, "detach": (*segment.Segment).Detach} {
		t.Run(name, func(t *testing.T) {
			s, o := withSidecar(t)
			inherited, err := unix.Dup(descriptorOf(t, sidecar.Of(s).Path())) // as fork does
			require.NoError(t, err)
			defer func() { require.NoError(t, unix.Close(inherited)) }()
			require.NoError(t, end(s))
			got, err := segment.Sweep(segment.SweepOptions{Dir: o.Dir, Prefix: o.Name, AnyOwner: true})
			require.NoError(t, err)
			require.Len(t, got, 1)
			require.False(t, got[0].Alive, "its writer has closed it")
			next, err := segment.Adopt(o)
			require.NoError(t, err)
			require.NoError(t, next.Destroy())
		})
	}
}

// descriptorOf returns a descriptor of this process for the file at path.
func descriptorOf(t *testing.T, path string) int {
	t.Helper()
	want, err := os.Stat(path)
	require.NoError(t, err)
	all, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, f := range all {
		if got, err := os.Stat("/proc/self/fd/" + f.Name()); err == nil && os.SameFile(want, got) {
			n, err := strconv.Atoi(f.Name())
			require.NoError(t, err)
			return n
		}
	}
	require.FailNow(t, "no descriptor", path)
	return 0
}
