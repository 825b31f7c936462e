//go:build linux

package segment_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/shmring/segment"
)

// idle reports whether a channel is closed.
func idle(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Unlink removes the names at once; after Leave the memory stays until the last hold ends.
func TestLeaveKeepsTheMemoryWhileItIsHeld(t *testing.T) {
	dir := t.TempDir()
	s, err := segment.Create(segment.Options{Name: "s", Dir: dir, RingSize: 4096, Sidecar: &segment.SidecarOptions{Readers: 1}})
	require.NoError(t, err)
	require.True(t, idle(s.Idle()))
	require.NoError(t, s.Hold())
	require.NoError(t, s.Hold())
	require.Equal(t, 2, s.Holds())
	wait := s.Idle()
	mem := s.Bytes()
	require.NoError(t, s.Unlink())
	require.NoError(t, s.Leave())
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
	require.ErrorIs(t, s.Hold(), fs.ErrClosed)
	require.NoError(t, s.Close())
	mem[100] = 1
	s.Release()
	mem[100] = 2
	require.False(t, idle(wait))
	s.Release()
	require.True(t, idle(wait))
	require.Nil(t, s.Bytes(), "the memory is gone")
	require.NoError(t, s.Leave())
}

// TestHoldersRaceWithTheEnd ends a segment in every way while goroutines hold it: the memory is
// there under every hold, each wait ends, and the last one unmaps.
func TestHoldersRaceWithTheEnd(t *testing.T) {
	dir := t.TempDir()
	ends := map[string]func(*segment.Segment) error{
		"Close": (*segment.Segment).Close, "Detach": (*segment.Segment).Detach,
		"Destroy": (*segment.Segment).Destroy, "Leave": (*segment.Segment).Leave,
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			for round := range 25 {
				s, err := segment.Create(segment.Options{Name: fmt.Sprint(name, round), Dir: dir, RingSize: 4096, Sidecar: &segment.SidecarOptions{Readers: 1}})
				require.NoError(t, err)
				started, enough := make(chan struct{}, 4), make(chan struct{})
				var wg sync.WaitGroup
				for range 4 {
					wg.Go(func() {
						started <- struct{}{}
						for {
							select {
							case <-enough:
								return
							default:
							}
							if err := s.Hold(); err != nil {
								assert.ErrorIs(t, err, fs.ErrClosed)
								return
							}
							_ = mem.Load32(s.Ring()) // a fault ends the process
							s.Release()
							runtime.Gosched() // lets the test come to the end
						}
					})
				}
				for range 4 {
					<-started
				}
				err = end(s)
				for range 3 {
					if errors.Is(err, segment.ErrBusy) {
						<-s.Idle()
						err = end(s)
					}
				}
				close(enough)
				wg.Wait()
				if errors.Is(err, segment.ErrBusy) {
					<-s.Idle()
					err = end(s)
				}
				require.NoError(t, err)
				require.Nil(t, s.Bytes(), "unmapped")
				require.Zero(t, s.Holds())
				require.ErrorIs(t, s.Hold(), fs.ErrClosed)
			}
		})
	}
}

func TestReleaseWithoutHoldPanics(t *testing.T) {
	s, err := segment.Private(nil, segment.Options{RingSize: 4096})
	require.NoError(t, err)
	require.Panics(t, s.Release)
	require.True(t, idle(s.Idle()))
	require.NoError(t, s.Hold())
	wait := s.Idle()
	require.Equal(t, 1, s.Holds())
	require.False(t, idle(wait))
	s.Release()
	require.True(t, idle(wait))
	require.Panics(t, s.Release)
	require.NoError(t, s.Hold(), "a mistake changes nothing")
	require.ErrorIs(t, s.Close(), segment.ErrBusy)
	s.Release()
	require.NoError(t, s.Close())
	require.Panics(t, s.Release)
	require.ErrorIs(t, s.Hold(), fs.ErrClosed)
}

func TestHoldAllocatesNothing(t *testing.T) {
	s, err := segment.Private(nil, segment.Options{RingSize: 4096})
	require.NoError(t, err)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if s.Hold() == nil {
			s.Release()
		}
	}))
	require.NoError(t, s.Close())
}
