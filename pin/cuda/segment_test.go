//go:build linux && cgo && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/pin"
	"github.com/ringcache/ringcache/pin/cuda"
	"github.com/ringcache/ringcache/shmring/segment"
)

// pinned creates a segment of some pages in /dev/shm, and pins it.
func pinned(t *testing.T, d *cuda.Driver, pages int, o segment.PinOptions) (*segment.Segment, *segment.Pin) {
	t.Helper()
	s, err := segment.Create(segment.Options{Name: segmentName(), RingSize: pages << 12})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Destroy()) })
	p, err := s.Pin(t.Context(), d, o)
	require.NoError(t, err)
	return s, p
}

// The segment ends its registration before it is unmapped, which the fake driver checks, and the driver is closed after that.
func TestSegmentPin(t *testing.T) {
	f := useFake(t)
	d := open(t, 0)
	s, p := pinned(t, d, 5, segment.PinOptions{Mapped: true})
	require.NoError(t, p.Reason())
	m := s.Bytes()
	require.ErrorIs(t, d.Close(), segment.ErrBusy)
	copyFrom(t, d, m[4096:8192])
	require.NoError(t, s.Destroy())
	require.Equal(t, []string{
		initialized, retained(0), registered(m, 3, 0), copied(m[4096:8192], "registered", 0), unregistered(m, 0),
	}, calls(f))
}

// A reader that maps a segment to read only registers it so.
func TestSegmentPinReadOnly(t *testing.T) {
	f := useFake(t)
	d := open(t, 0)
	name := segmentName()
	s, err := segment.Create(segment.Options{Name: name, RingSize: 2 << 12})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Destroy()) })
	r, err := segment.Attach(segment.Options{Name: name, RingSize: 2 << 12, ReadOnly: true})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, r.Close()) })
	_, err = r.Pin(t.Context(), d, segment.PinOptions{Require: true})
	require.NoError(t, err)
	m := r.Bytes()
	require.NoError(t, r.Close())
	require.Equal(t, []string{initialized, retained(0), registered(m, 1|8, 0), unregistered(m, 0)}, calls(f))
}

// Everything is registered, or nothing.
func TestSegmentPinTakesBack(t *testing.T) {
	f := useFake(t)
	d := open(t, 0)
	f.Fail("cuMemHostRegister:3:801")
	s, p := pinned(t, d, 5, segment.PinOptions{MaxCall: 2 << 12})
	require.False(t, p.Pinned())
	require.ErrorIs(t, p.Reason(), errors.ErrUnsupported)
	m := s.Bytes()
	require.Equal(t, []string{
		initialized, retained(0), registered(m[:2<<12], 1, 0), registered(m[2<<12:4<<12], 1, 0), registered(m[4<<12:], 1, 801),
		unregistered(m[2<<12:], 0), unregistered(m, 0),
	}, calls(f))
}

// While the driver does not unregister the pages, they stay mapped.
func TestSegmentStaysWhileItIsRegistered(t *testing.T) {
	f := useFake(t)
	d := open(t, 0)
	s, p := pinned(t, d, 2, segment.PinOptions{})
	require.True(t, p.Pinned())
	m := s.Bytes()
	f.Fail("cuMemHostUnregister:1:1")
	require.ErrorContains(t, s.Destroy(), "cuMemHostUnregister: CUDA_ERROR_INVALID_VALUE (1)")
	_, err := d.Register(m, pin.RegisterOptions{})
	require.ErrorIs(t, err, pin.ErrRegistered, "the memory is there, and registered")
	require.NoError(t, s.Close())
	require.Equal(t, []string{initialized, retained(0), registered(m, 1, 0), unregistered(m, 1), registered(m, 1, 712), unregistered(m, 0)}, calls(f))
}
