//go:build linux && cgo && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/pin/cuda"
	"github.com/ringcache/ringcache/pin/cuda/internal/fakedriver"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/segment"
	"github.com/ringcache/ringcache/shmstore"
)

// These tests are about one rule: a place in shared memory is reused only after the end of the copies from it. Those that
// end in "Corrupts" break the rule, which shows that the comparison finds it.

// segmentName returns a name that no other segment has.
func segmentName() string {
	var b [6]byte
	_, _ = rand.Read(b[:])
	return "ringcache-test-cuda-" + hex.EncodeToString(b[:])
}

// pattern fills b with what only this seed makes.
func pattern(b []byte, seed uint64) []byte {
	for i := 0; i+8 <= len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], (seed+1)*0x9E3779B97F4A7C15+uint64(i))
	}
	return b
}

// reuseTooEarly copies what prepare returns to the device, and calls reuse before the copy has ended. It returns what the device
// got. On a machine that is too slow for the delay of the copy, it tries again with a longer one.
func reuseTooEarly(t *testing.T, f *fakedriver.Driver, d *cuda.Driver, dst *cuda.Memory, prepare func() []byte, reuse func()) []byte {
	t.Helper()
	for delay := 200 * time.Millisecond; delay < 5*time.Minute; delay *= 2 {
		f.SetDelay(delay)
		c, err := d.Copy(dst, 0, prepare())
		require.NoError(t, err)
		reuse()
		ended, err := c.Done()
		require.NoError(t, err)
		require.NoError(t, c.Wait())
		if !ended {
			return read(t, d, dst)
		}
	}
	require.Fail(t, "every copy ended before its source was reused")
	return nil
}

// slots creates a segment in /dev/shm with so many slots of 64 KiB, and registers it.
func slots(t *testing.T, d *cuda.Driver, n int) [][]byte {
	t.Helper()
	const size = 64 << 10
	s, err := segment.Create(segment.Options{Name: segmentName(), RingSize: n * size})
	require.NoError(t, err)
	require.NoError(t, s.Unlink()) // nothing is left if this process crashes
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	register(t, d, s.Bytes())
	var out [][]byte
	for i := range n {
		out = append(out, s.Ring()[i*size:][:size])
	}
	return out
}

func TestSlotReusedBeforeTheEventCorrupts(t *testing.T) {
	f := useFake(t)
	d := open(t, 0)
	slot := slots(t, d, 3)[1]
	dst := alloc(t, d, len(slot))
	got := reuseTooEarly(t, f, d, dst, func() []byte { return pattern(slot, 1) }, func() { pattern(slot, 2) })
	require.False(t, bytes.Equal(pattern(make([]byte, len(slot)), 1), got), "the device has what was copied")
	require.True(t, bytes.Equal(pattern(make([]byte, len(slot)), 2), got), "and not what came after it")
}

// A writer fills slots all the time, and gets them back from readers after the events of their copies.
func TestSlotReusedAfterTheEvent(t *testing.T) {
	f := useFake(t)
	d := open(t, 0)
	f.SetDelay(300 * time.Microsecond)
	type filled struct {
		slot []byte
		seed uint64
	}
	const readers, objects = 3, 300
	all := slots(t, d, readers+1)
	free, full := make(chan []byte, len(all)), make(chan filled, len(all))
	for _, s := range all {
		free <- s
	}
	var running sync.WaitGroup
	running.Go(func() {
		for seed := range uint64(objects) {
			full <- filled{pattern(<-free, seed), seed}
		}
		close(full)
	})
	var waited atomic.Int64 // for copies that had not ended at once
	for range readers {
		dst := alloc(t, d, len(all[0]))
		running.Go(func() {
			for o := range full {
				c, err := d.Copy(dst, 0, o.slot)
				if !assert.NoError(t, err) {
					return
				}
				for o.seed%2 == 0 { // every other copy is polled, the others are waited for
					done, err := c.Done()
					if !assert.NoError(t, err) {
						return
					}
					if done {
						break
					}
					waited.Add(1)
					runtime.Gosched()
				}
				assert.NoError(t, c.Wait())
				want := bytes.Clone(o.slot)
				free <- o.slot
				got := make([]byte, len(want))
				assert.NoError(t, d.Read(got, dst, 0))
				assert.True(t, bytes.Equal(pattern(want, o.seed), got), "object %d", o.seed)
			}
		})
	}
	running.Wait()
	require.Positive(t, waited.Load(), "copies took time")
}

// oneObject is a store with room for one object, and a reader whose own mapping of it is registered.
type oneObject struct {
	store   *shmstore.Store
	reader  *shmstore.Reader
	mapping *segment.Segment
	dst     *cuda.Memory
}

const objectSize = 64 << 10

func storeForOneObject(t *testing.T, d *cuda.Driver) *oneObject {
	t.Helper()
	const size = objectSize * 3 / 2
	name := segmentName()
	store, err := shmstore.Create(shmstore.Options{Name: name, Size: size})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, store.CheckStructure())
		assert.NoError(t, store.Abandon())
	})
	reader, err := shmstore.Open(name, shmstore.ReaderOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, reader.Close()) })
	mapping, err := segment.Attach(segment.Options{Name: name, RingSize: size})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, mapping.Close()) })
	register(t, d, mapping.Bytes())
	return &oneObject{store, reader, mapping, alloc(t, d, objectSize)}
}

// put puts an object, and evicts the last one if no reader looks at it.
func (s *oneObject) put(seed uint64) (shmstore.Handle, error) {
	req, err := s.store.Begin(shmstore.RequestOptions{ID: "put"})
	if err != nil {
		return shmstore.Handle{}, err
	}
	defer req.Rollback()
	o, err := req.Put(fmt.Sprint(seed), pattern(make([]byte, objectSize), seed), shmstore.PutOptions{})
	if err != nil {
		return shmstore.Handle{}, err
	}
	return o.Handle(), nil
}

// view looks at an object, and returns its bytes in the registered mapping.
func (s *oneObject) view(t *testing.T, h shmstore.Handle) (*shmstore.View, []byte) {
	t.Helper()
	v, err := s.reader.Get(h)
	require.NoError(t, err)
	t.Cleanup(v.Release)
	return v, s.mapping.Bytes()[h.Offset:][:h.Length]
}

func TestViewReleasedBeforeTheEventCorrupts(t *testing.T) {
	f := useFake(t)
	d := open(t, 0)
	s := storeForOneObject(t, d)
	var v *shmstore.View
	var seed uint64
	got := reuseTooEarly(t, f, d, s.dst, func() []byte {
		seed += 2
		h, err := s.put(seed)
		require.NoError(t, err)
		var src []byte
		v, src = s.view(t, h)
		return src
	}, func() {
		v.Release()
		_, err := s.put(seed + 1)
		require.NoError(t, err)
	})
	require.False(t, bytes.Equal(pattern(make([]byte, objectSize), seed), got), "the device has what was copied")
	require.True(t, bytes.Equal(pattern(make([]byte, objectSize), seed+1), got), "and not what came after it")
}

// The view keeps the object where it is, however the writer tries, until the event of the copy.
func TestViewReleasedAfterTheEvent(t *testing.T) {
	f := useFake(t)
	d := open(t, 0)
	f.SetDelay(time.Millisecond)
	s := storeForOneObject(t, d)
	h, err := s.put(0)
	require.NoError(t, err)
	for seed := range uint64(60) {
		v, src := s.view(t, h)
		c, err := d.Copy(s.dst, 0, src)
		require.NoError(t, err)
		_, err = s.put(seed + 1)
		require.ErrorIs(t, err, shmring.ErrFull, "the view keeps the object")

		next := make(chan error, 1)
		go func() { // the writer goes on trying meanwhile
			for end := time.Now().Add(5 * time.Minute); ; runtime.Gosched() {
				var err error
				if h, err = s.put(seed + 1); !errors.Is(err, shmring.ErrFull) || time.Now().After(end) {
					next <- err
					return
				}
			}
		}()
		assert.NoError(t, c.Wait())
		assert.NoError(t, v.Check())
		v.Release()
		require.NoError(t, <-next)
		require.True(t, bytes.Equal(pattern(make([]byte, objectSize), seed), read(t, d, s.dst)), "round %d", seed)
	}
}
