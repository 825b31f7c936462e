//go:build linux

package shmring

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A child process has every descriptor of its parent between fork and exec. The
// writer's lock must not stay in them.
func TestCloseFreesTheLockThatAChildInherits(t *testing.T) {
	for name, end := range map[string]func(*Segment) error{"close": (*Segment).Close, "detach": (*Segment).Detach} {
		t.Run(name, func(t *testing.T) {
			s, o := withControl(t)
			inherited, err := unix.Dup(int(s.Control().file.Fd())) // as fork does
			require.NoError(t, err)
			defer func() { require.NoError(t, unix.Close(inherited)) }()
			require.NoError(t, end(s))
			got, err := Sweep(SweepOptions{Dir: o.Dir, Prefix: o.Name, AnyOwner: true})
			require.NoError(t, err)
			require.Len(t, got, 1)
			require.False(t, got[0].Alive, "its writer has closed it")
			next, err := Adopt(o)
			require.NoError(t, err)
			require.NoError(t, next.Destroy())
		})
	}
}
