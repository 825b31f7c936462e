//go:build linux && cgo && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"bytes"
	"io/fs"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/pin"
	"github.com/ringcache/ringcache/pin/cuda"
	"github.com/ringcache/ringcache/shmring/segment"
)

func TestCopy(t *testing.T) {
	f := useFake(t)
	d := open(t, 0)
	m := mapping(t, 4<<12)
	r := register(t, d, m)
	dst := alloc(t, d, 1000)
	require.Equal(t, 1000, dst.Size())
	require.NotZero(t, dst.Address())
	src := m[5000:5600]
	copy(src, bytes.Repeat([]byte("ring"), 150))
	c, err := d.Copy(dst, 100, src)
	require.NoError(t, err)
	require.NoError(t, c.Wait())
	done, err := c.Done()
	require.NoError(t, err)
	require.True(t, done)
	require.NoError(t, c.Wait(), "waiting twice is fine")

	part := make([]byte, 300)
	require.NoError(t, d.Read(part, dst, 200))
	require.Equal(t, src[100:400], part)
	all := read(t, d, dst)
	require.Equal(t, src, all[100:700])
	require.NotContains(t, string(all[:100])+string(all[700:]), "r", "nothing around it was written")

	none, err := d.Copy(dst, 1000, m[:0])
	require.NoError(t, err)
	require.NoError(t, none.Wait())
	require.NoError(t, d.Read(nil, dst, 1000))

	require.NoError(t, dst.Free())
	require.NoError(t, dst.Free(), "freeing twice is fine")
	require.NoError(t, r.Unregister())
	require.NoError(t, d.Close())
	require.Equal(t, []string{initialized, retained(0), registered(m, 1, 0), copied(src, "registered", 0), unregistered(m, 0), released(0)}, calls(f))
}

// The driver's own order is not enough: its copies to the host don't wait for the stream of the others.
func TestReadComesAfterTheCopiesBegunBefore(t *testing.T) {
	f := useFake(t)
	d := open(t, 0)
	m := pattern(mapping(t, 1<<12), 1)
	register(t, d, m)
	dst := alloc(t, d, len(m))
	f.SetDelay(50 * time.Millisecond)
	c, err := d.Copy(dst, 0, m)
	require.NoError(t, err)
	require.Equal(t, m, read(t, d, dst))
	require.NoError(t, c.Wait())

	f.Fail("cuStreamSynchronize:0:700,cuMemcpyDtoH:0:701")
	require.ErrorContains(t, d.Read(make([]byte, 1), dst, 0), "cuStreamSynchronize: error (700)")
}

// Bounds are checked before the driver is called, which would write over other memory.
func TestCopyChecksBounds(t *testing.T) {
	f := useFake(t)
	d, other := open(t, 0), open(t, 1)
	src := mapping(t, 1<<12)
	dst, foreign := alloc(t, d, 100), alloc(t, other, 100)
	for name, c := range map[string]struct {
		m      *cuda.Memory
		offset int
		n      int
		text   string
	}{
		"one too many":     {dst, 1, 100, "100 bytes at 1 are not in device memory of 100"},
		"negative":         {dst, -1, 1, "1 bytes at -1"},
		"behind the end":   {dst, 101, 0, "0 bytes at 101"},
		"overflow":         {dst, 1<<63 - 1, 1, "not in device memory of 100"},
		"of another":       {foreign, 0, 1, "another driver's"},
		"more than memory": {dst, 0, 4096, "4096 bytes at 0"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := d.Copy(c.m, c.offset, src[:c.n])
			require.ErrorIs(t, err, fs.ErrInvalid)
			require.ErrorContains(t, err, c.text)
			err = d.Read(make([]byte, c.n), c.m, c.offset)
			require.ErrorIs(t, err, fs.ErrInvalid)
			require.ErrorContains(t, err, c.text)
		})
	}
	for _, n := range []int{0, -1} {
		_, err := d.Alloc(n)
		require.ErrorIs(t, err, fs.ErrInvalid)
	}
	require.Equal(t, []string{initialized, retained(0), initialized, retained(1)}, calls(f))
}

// What a copy still needs is refused by every call that would take it away.
func TestOpenCopyKeepsWhatItNeeds(t *testing.T) {
	f := useFake(t)
	d := open(t, 0)
	m := mapping(t, 4<<12)
	r := register(t, d, m)
	dst := alloc(t, d, len(m))
	f.SetDelay(20 * time.Millisecond)
	c, err := d.Copy(dst, 0, m)
	require.NoError(t, err)
	for what, end := range map[string]func() error{
		"copies from the registered memory that have not ended: 1":     r.Unregister,
		"copies and reads of the device memory that have not ended: 1": dst.Free,
		"open: registrations 1, device memories 1, copies 1":           d.Close,
	} {
		err := end()
		require.ErrorIs(t, err, segment.ErrBusy)
		require.ErrorContains(t, err, what)
	}
	require.NoError(t, c.Wait())
	require.NoError(t, r.Unregister())
	require.ErrorContains(t, d.Close(), "open: registrations 0, device memories 1, copies 0")
	require.NoError(t, dst.Free())
	require.NoError(t, d.Close())
	require.Equal(t, []string{initialized, retained(0), registered(m, 1, 0), copied(m, "registered", 0), unregistered(m, 0), released(0)}, calls(f))
}

// A copy may be asked by several goroutines. Its event is destroyed once.
func TestCopyAskedByManyGoroutines(t *testing.T) {
	f := useFake(t)
	d := open(t, 0)
	m := mapping(t, 1<<12)
	register(t, d, m)
	dst := alloc(t, d, len(m))
	for range 20 {
		f.SetDelay(2 * time.Millisecond)
		c, err := d.Copy(dst, 0, m)
		require.NoError(t, err)
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				if i < 2 {
					assert.NoError(t, c.Wait())
					return
				}
				for {
					done, err := c.Done()
					if !assert.NoError(t, err) || done {
						return
					}
				}
			})
		}
		all.Wait()
		require.Zero(t, f.Left()["events"])
	}
}

// Whichever call of the driver fails, the copy is not begun, nothing of it is left, and the next copy works.
func TestCopyFails(t *testing.T) {
	for op, log := range map[string]bool{ // whether the fake logged the copy
		"cuStreamCreate": false, "cuCtxPushCurrent": false, "cuEventCreate": false, "cuMemcpyHtoDAsync": true, "cuEventRecord": true,
	} {
		t.Run(op, func(t *testing.T) {
			f := useFake(t)
			d := open(t, 0)
			m := mapping(t, 1<<12)
			r := register(t, d, m)
			dst := alloc(t, d, len(m))
			if op != "cuStreamCreate" {
				c, err := d.Copy(dst, 0, m) // makes the stream
				require.NoError(t, err)
				require.NoError(t, c.Wait())
			}
			f.Reset()
			f.SetDelay(10 * time.Millisecond)
			f.Fail(op + ":1:700")
			_, err := d.Copy(dst, 0, m)
			var e *cuda.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, op, e.Op)
			require.Equal(t, 700, e.Code)
			var want []string
			if log {
				code := 0
				if op == "cuMemcpyHtoDAsync" {
					code = 700
				}
				want = append(want, copied(m, "registered", code))
			}
			require.Equal(t, want, calls(f))
			require.Zero(t, f.Left()["events"])
			copy(m, "again")
			c, err := d.Copy(dst, 0, m)
			require.NoError(t, err)
			require.NoError(t, c.Wait())
			require.Equal(t, m, read(t, d, dst))
			require.NoError(t, r.Unregister())
		})
	}
}

// If the end of a copy was not marked, and can't be waited for either, it may go on for ever: nothing that it uses is given back.
func TestCopyThatMayGoOn(t *testing.T) {
	f := useFake(t)
	d, err := cuda.Open(0, cuda.Options{Library: fakeLibrary})
	require.NoError(t, err)
	m := mapping(t, 1<<12)
	r, err := d.Register(m, pin.RegisterOptions{})
	require.NoError(t, err)
	dst, err := d.Alloc(len(m))
	require.NoError(t, err)
	f.Fail("cuEventRecord:1:700,cuStreamSynchronize:1:700")
	_, err = d.Copy(dst, 0, m)
	require.ErrorContains(t, err, "cuEventRecord")
	require.ErrorIs(t, r.Unregister(), segment.ErrBusy)
	require.ErrorIs(t, dst.Free(), segment.ErrBusy)
	require.ErrorIs(t, d.Close(), segment.ErrBusy)

	f.End()
}

// An error while a copy is asked for says nothing about its end.
func TestCopyAskedInVain(t *testing.T) {
	for op, ask := range map[string]func(*cuda.Copy) error{
		"cuEventQuery":       func(c *cuda.Copy) error { _, err := c.Done(); return err },
		"cuEventSynchronize": (*cuda.Copy).Wait,
		"cuCtxPushCurrent":   (*cuda.Copy).Wait,
	} {
		t.Run(op, func(t *testing.T) {
			f := useFake(t)
			d := open(t, 0)
			m := mapping(t, 1<<12)
			r := register(t, d, m)
			dst := alloc(t, d, len(m))
			c, err := d.Copy(dst, 0, m)
			require.NoError(t, err)
			f.Reset()
			f.Fail(op + ":1:700")
			err = ask(c)
			var e *cuda.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, cuda.Error{Op: op, Code: 700}, *e)
			require.ErrorIs(t, r.Unregister(), segment.ErrBusy, "the device may still read")
			require.NoError(t, c.Wait())
			require.NoError(t, r.Unregister())
		})
	}
}

// An event that is destroyed is gone, whatever the driver returns: it reports failures of other calls there, too.
func TestEventIsDestroyedOnce(t *testing.T) {
	f := useFake(t)
	d := open(t, 0)
	m := mapping(t, 1<<12)
	dst := alloc(t, d, len(m))
	c, err := d.Copy(dst, 0, m)
	require.NoError(t, err)
	f.Fail("cuEventDestroy:1:700")
	require.NoError(t, c.Wait())
	done, err := c.Done()
	require.NoError(t, err)
	require.True(t, done)
	require.NoError(t, dst.Free())
	require.NoError(t, d.Close())
}

func TestAllocFreeAndReadFail(t *testing.T) {
	f := useFake(t)
	d := open(t, 0)
	f.Fail("cuMemAlloc:1:2,cuMemFree:1:700,cuMemcpyDtoH:1:700")
	_, err := d.Alloc(100)
	require.EqualError(t, err, "cuda: cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory. The device's memory is full")
	m, err := d.Alloc(100)
	require.NoError(t, err)
	require.ErrorContains(t, d.Read(make([]byte, 1), m, 0), "cuMemcpyDtoH: error (700)")
	require.ErrorContains(t, m.Free(), "cuMemFree: error (700)")
	require.ErrorContains(t, d.Close(), "device memories 1")
	require.NoError(t, d.Read(make([]byte, 1), m, 0), "it was not freed")
	require.NoError(t, m.Free())
	require.ErrorIs(t, d.Read(make([]byte, 1), m, 0), fs.ErrClosed)
	_, err = d.Copy(m, 0, mapping(t, 1<<12))
	require.ErrorIs(t, err, fs.ErrClosed)
	require.ErrorContains(t, err, "the device memory was freed")
	require.NoError(t, d.Close())
}
