//go:build linux

package objstore_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/internal/pintest"
	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/objstore/internal/objtest"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring/memory"
	"github.com/ringcache/ringcache/shmring/segment"
)

// TestPinnedPoolFeedsADevice: a device copies the tensors from the pinned pages of the
// reader, which releases each view after the copy, while the writer evicts and writes on.
// That proves nothing about a driver.
func TestPinnedPoolFeedsADevice(t *testing.T) {
	name := fmt.Sprintf("ringcache-test-pinned-%d-%d", os.Getpid(), rand.Uint64())
	o := objstore.Options{Name: name, RingSize: 1<<20 - 100, Readers: 1}
	w, err := objstore.CreatePool(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Abandon()) }) // removes the segment
	r, err := objstore.Open(name, objstore.ReaderOptions{RingSize: o.RingSize, Readers: 1, SidecarLock: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	pin := func(s *segment.Segment) *pintest.Pinned {
		report, err := s.Prepare(t.Context(), memory.Options{Prefault: true, Require: true})
		require.NoError(t, err, report)
		p, err := pintest.Pin(s.Bytes())
		if errors.Is(err, pintest.ErrNotAllowed) {
			t.Skip(err)
		}
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, p.Release()) })
		return p
	}
	pin(w.Segment()) // by a device of the writer, too
	device := pin(r.Segment())

	type object struct {
		key    string
		handle serde.Address
		fill   byte
		bytes  int
		of     objstore.Request
	}
	sent := make(chan object, 8)
	var wg sync.WaitGroup
	wg.Go(func() {
		for o := range sent {
			v, err := r.Get(o.key, o.handle)
			if assert.NoError(t, err) {
				tensor := v.Item().Elems[0].Data.(*serde.Tensor).Data
				at, ok := mem.Offset(r.Segment().Bytes(), mem.Addr(tensor))
				assert.True(t, ok, "the tensor of %s is in the mapping", o.key)
				got := make([]byte, o.bytes)
				assert.NoError(t, device.Copy(got, at))
				assert.True(t, bytes.Equal(bytes.Repeat([]byte{o.fill}, o.bytes), got), "the device's copy of %s", o.key)
				assert.NoError(t, v.Check())
				assert.NoError(t, v.Release())
			}
			o.of.Finish()
		}
	})
	total := 0
	for i := 0; total < 8*o.RingSize; i++ {
		n, b, key := 1000+rand.IntN(o.RingSize/5), byte(i+1), fmt.Sprint("image ", i)
		request, err := w.Begin(key)
		if !assert.NoError(t, err) {
			break
		}
		var h serde.Address
		for {
			if h, err = request.Put(key, objtest.Image(n, b), objstore.PutOptions{}); !errors.Is(err, objstore.ErrFull) {
				break
			}
			runtime.Gosched() // until the reader is done with others
		}
		if !assert.NoError(t, err) || !assert.NoError(t, request.Commit()) {
			break
		}
		sent <- object{key, h, b, n, request}
		total += n
	}
	close(sent)
	wg.Wait()
	require.NoError(t, w.CheckStructure())
	st, err := w.Stats()
	require.NoError(t, err)
	t.Logf("%d bytes through a pool of %d: %+v", total, o.RingSize, st)
}
