//go:build linux && cgo && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"io/fs"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/pin"
	"github.com/ringcache/ringcache/pin/cuda"
	"github.com/ringcache/ringcache/shmring/segment"
)

func TestCloseRefusesWhileARegistrationIsOpen(t *testing.T) {
	f := useFake(t)
	d := open(t, 0)
	m := mapping(t, 1<<12)
	r := register(t, d, m)
	err := d.Close()
	require.ErrorIs(t, err, segment.ErrBusy)
	require.EqualError(t, err, "cuda: in use: open: registrations 1, device memories 0, copies 0")
	require.True(t, r.Pinned())
	require.NoError(t, r.Unregister())
	require.NoError(t, d.Close())
	require.Equal(t, []string{initialized, retained(0), registered(m, 1, 0), unregistered(m, 0), released(0)}, calls(f))
}

func TestUseAfterClose(t *testing.T) {
	f := useFake(t)
	d := open(t, 0)
	m := mapping(t, 1<<12)
	r := register(t, d, m)
	dst := alloc(t, d, 10)
	c, err := d.Copy(dst, 0, m[:10])
	require.NoError(t, err)
	require.NoError(t, c.Wait())
	require.NoError(t, dst.Free())
	require.NoError(t, r.Unregister())
	require.NoError(t, d.Close())
	f.Reset()

	_, err = d.Register(m, pin.RegisterOptions{})
	require.ErrorIs(t, err, fs.ErrClosed)
	_, err = d.Alloc(10)
	require.ErrorIs(t, err, fs.ErrClosed)
	_, err = d.Copy(dst, 0, m[:10])
	require.ErrorIs(t, err, fs.ErrClosed)
	require.ErrorIs(t, d.Read(make([]byte, 1), dst, 0), fs.ErrClosed)
	require.NoError(t, dst.Free())
	require.NoError(t, r.Unregister())
	require.False(t, r.Pinned())
	done, err := c.Done()
	require.NoError(t, err)
	require.True(t, done)
	require.NoError(t, d.Close())
	require.Empty(t, calls(f), "the driver was not called")
}

// What the driver refuses at the end can be tried again, and is done once.
func TestCloseFails(t *testing.T) {
	for op, log := range map[string][]string{
		"cuStreamDestroy":           {released(0)},
		"cuDevicePrimaryCtxRelease": {"cuDevicePrimaryCtxRelease 0 = 700", released(0)},
	} {
		t.Run(op, func(t *testing.T) {
			f := useFake(t)
			d := open(t, 0)
			require.NoError(t, useOnce(t, d, mapping(t, 1<<12))) // makes the stream
			f.Reset()
			f.Fail(op + ":1:700")
			err := d.Close()
			var e *cuda.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, cuda.Error{Op: op, Code: 700}, *e)
			require.NoError(t, d.Close())
			require.NoError(t, d.Close())
			require.Equal(t, log, calls(f))
		})
	}
}

// useOnce copies m to new device memory, or returns why there is none. It may be called by any goroutine.
func useOnce(t *testing.T, d *cuda.Driver, m []byte) error {
	dst, err := d.Alloc(len(m))
	if err != nil {
		return err
	}
	c, err := d.Copy(dst, 0, m)
	if assert.NoError(t, err) {
		assert.NoError(t, c.Wait())
	}
	assert.NoError(t, dst.Free())
	return nil
}

// Close wins or loses against every other call, and in the end everything was given back, in order.
func TestCloseRaces(t *testing.T) {
	f := useFake(t)
	const workers, rounds = 4, 40
	var memory [workers][]byte
	for i := range memory {
		memory[i] = mapping(t, 2<<12)
	}
	other := mapping(t, 1<<12)
	var busy, refused atomic.Int64
	for range rounds {
		d, err := cuda.Open(0, cuda.Options{Library: fakeLibrary})
		require.NoError(t, err)
		var all sync.WaitGroup
		start := make(chan struct{})
		for i := range workers {
			all.Go(func() {
				<-start
				for range 3 {
					r, err := d.Register(memory[i], pin.RegisterOptions{})
					if err != nil {
						assert.ErrorIs(t, err, fs.ErrClosed)
						refused.Add(1)
						return
					}
					assert.NoError(t, useOnce(t, d, memory[i]), "Close can't win while the registration is open")
					all.Go(func() { assert.NoError(t, r.Unregister()) })
					assert.NoError(t, r.Unregister())
				}
			})
		}
		all.Go(func() { // copies without a registration
			<-start
			for range 3 {
				if err := useOnce(t, d, other); err != nil {
					assert.ErrorIs(t, err, fs.ErrClosed)
					refused.Add(1)
					return
				}
			}
		})
		for range 2 {
			all.Go(func() {
				<-start
				for range 20 {
					err := d.Close()
					if err == nil {
						return
					}
					assert.ErrorIs(t, err, segment.ErrBusy)
					busy.Add(1)
					runtime.Gosched()
				}
			})
		}
		close(start)
		all.Wait()
		require.NoError(t, d.Close())
	}
	require.Positive(t, busy.Load()+refused.Load(), "Close met other calls")
	open, opened := 0, 0
	for _, line := range calls(f) {
		require.True(t, strings.HasSuffix(line, " = 0"), line)
		switch op, _, _ := strings.Cut(line, " "); op {
		case "cuMemHostRegister":
			open++
		case "cuMemHostUnregister":
			open--
		case "cuDevicePrimaryCtxRetain":
			opened++
		case "cuDevicePrimaryCtxRelease":
			opened--
			require.Zero(t, open, "registrations when the context was released")
		}
		require.Contains(t, []int{0, 1}, opened)
	}
	require.Zero(t, open)
	t.Log("refused by Close:", refused.Load(), "and Close refused:", busy.Load())
}
