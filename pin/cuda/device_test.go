//go:build linux && cgo && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"bytes"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/pin"
	"github.com/ringcache/ringcache/pin/cuda"
	"github.com/ringcache/ringcache/shmring/segment"
)

// TestDevice copies from a segment to a real GPU. It takes the device's memory, so it runs only where
// RINGCACHE_TEST_GPU is the number of a device.
func TestDevice(t *testing.T) {
	number := os.Getenv("RINGCACHE_TEST_GPU")
	if number == "" {
		t.Skip("RINGCACHE_TEST_GPU does not name a GPU to test with")
	}
	device, err := strconv.Atoi(number)
	require.NoError(t, err)
	d, err := cuda.Open(device, cuda.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, d.Close()) })

	const size, slot = 64 << 20, 1<<20 + 12 // slots that begin anywhere in a page
	o := segment.Options{Name: segmentName(), RingSize: size, DataOffset: 32}
	w, err := segment.Create(o)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, w.Destroy()) })
	r, err := segment.Attach(o)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, r.Close()) })
	p, err := r.Pin(t.Context(), d, segment.PinOptions{Require: true})
	require.NoError(t, err)
	t.Logf("%+v", p.Stats())

	dst := alloc(t, d, slot)
	for round := range 3 { // the writer reuses each slot after the end of the copy
		for at := 0; at+slot <= size; at += slot {
			want := pattern(w.Ring()[at:at+slot], uint64(round*size+at))
			c, err := d.Copy(dst, 0, r.Ring()[at:at+slot])
			require.NoError(t, err)
			require.NoError(t, c.Wait())
			require.True(t, bytes.Equal(want, read(t, d, dst)), "the slot at %d in round %d", at, round)
		}
	}

	_, err = d.Register(r.Bytes()[:4096], pin.RegisterOptions{})
	require.ErrorIs(t, err, pin.ErrRegistered)
}
