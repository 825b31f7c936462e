//go:build linux && cgo && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"errors"
	"io/fs"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ringcache/ringcache/pin"
)

func TestRegister(t *testing.T) {
	f := useFake(t)
	d := open(t, 0)
	m := mapping(t, 5<<12)[:4<<12+100] // a segment need not end at a page
	r, err := d.Register(m, pin.RegisterOptions{})
	require.NoError(t, err)
	require.True(t, r.Pinned())
	require.NoError(t, r.Unregister())
	require.False(t, r.Pinned())
	require.NoError(t, r.Unregister(), "unregistering twice is fine")
	require.NoError(t, d.Close())
	want := []string{initialized, retained(0), registered(m, 1, 0), unregistered(m, 0), released(0)}
	require.Equal(t, want, calls(f))
	t.Log("\n" + strings.Join(calls(f), "\n"))
}

func TestRegisterFlags(t *testing.T) {
	for name, c := range map[string]struct {
		options    pin.RegisterOptions
		protection int
		flags      int
	}{
		"portable":             {pin.RegisterOptions{}, unix.PROT_READ | unix.PROT_WRITE, 1},
		"mapped":               {pin.RegisterOptions{Mapped: true}, unix.PROT_READ | unix.PROT_WRITE, 1 | 2},
		"read only":            {pin.RegisterOptions{ReadOnly: true}, unix.PROT_READ, 1 | 8},
		"read only and mapped": {pin.RegisterOptions{ReadOnly: true, Mapped: true}, unix.PROT_READ, 1 | 2 | 8},
	} {
		t.Run(name, func(t *testing.T) {
			f := useFake(t)
			d := open(t, 0)
			m := mapped(t, 2<<12, c.protection)
			r, err := d.Register(m, c.options)
			require.NoError(t, err)
			require.NoError(t, r.Unregister())
			require.Equal(t, []string{initialized, retained(0), registered(m, c.flags, 0), unregistered(m, 0)}, calls(f))
		})
	}
}

// Devices without attribute 113 can't register a mapping that is read only; drivers before CUDA 11.1 don't know the attribute.
func TestRegisterReadOnlyWhereTheDeviceCannot(t *testing.T) {
	for name, fail := range map[string]string{"not supported": "", "attribute unknown": "cuDeviceGetAttribute:2:1"} {
		t.Run(name, func(t *testing.T) {
			f := useFake(t)
			if fail == "" {
				f.SetAttribute(113, 0)
			} else {
				f.Fail(fail)
			}
			d := open(t, 0)
			m := mapped(t, 2<<12, unix.PROT_READ)
			_, err := d.Register(m, pin.RegisterOptions{ReadOnly: true})
			require.ErrorIs(t, err, errors.ErrUnsupported)
			require.ErrorContains(t, err, "map it writable")
			require.Equal(t, []string{initialized, retained(0)}, calls(f), "the driver was not asked")
		})
	}
}

// The driver's answer to a mapping that is read only, if that was not said, names the cause among others.
func TestRegisterReadOnlyMappingWithoutSayingSo(t *testing.T) {
	f := useFake(t)
	d := open(t, 0)
	m := mapped(t, 2<<12, unix.PROT_READ)
	_, err := d.Register(m, pin.RegisterOptions{})
	require.ErrorContains(t, err, "it is mapped to read only, and ReadOnly was not set")
	require.Equal(t, []string{initialized, retained(0), registered(m, 1, 1), registered(m, 1, 1)}, calls(f))
}

func TestRegisterRefusesBeforeTheDriver(t *testing.T) {
	f := useFake(t)
	d := open(t, 0)
	m := mapping(t, 2<<12)
	for name, c := range map[string]struct {
		m    []byte
		text string
	}{
		"nil":       {nil, "no memory to register"},
		"empty":     {m[:0], "no memory to register"},
		"in a page": {m[64:], "does not begin at a page of "},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := d.Register(c.m, pin.RegisterOptions{})
			require.ErrorIs(t, err, fs.ErrInvalid)
			require.ErrorContains(t, err, c.text)
		})
	}
	require.Equal(t, []string{initialized, retained(0)}, calls(f))
}

// Goroutines move between threads, and the driver's current context belongs to a thread.
func TestRegisterFromManyGoroutines(t *testing.T) {
	f := useFake(t)
	d := open(t, 1)
	const goroutines, rounds = 64, 3
	var all sync.WaitGroup
	for range goroutines {
		m := mapping(t, 2<<12)
		all.Go(func() {
			for range rounds {
				runtime.LockOSThread() // so that the goroutines below run on others
				r, err := d.Register(m, pin.RegisterOptions{})
				if !assert.NoError(t, err) {
					return
				}
				var ends sync.WaitGroup // by several at once
				for range 3 {
					ends.Go(func() { assert.NoError(t, r.Unregister()) })
				}
				ends.Wait()
				runtime.UnlockOSThread()
				assert.False(t, r.Pinned())
			}
		})
	}
	all.Wait()
	require.NoError(t, d.Close())
	threads, count := map[string]bool{}, map[string]int{}
	for _, c := range f.Log() {
		op, _, _ := strings.Cut(c.Text, " ")
		count[op]++
		threads[c.Thread] = true
		require.True(t, strings.HasSuffix(c.Text, " = 0"), c.Text)
	}
	require.Equal(t, map[string]int{
		"cuInit": 1, "cuDevicePrimaryCtxRetain": 1, "cuMemHostRegister": goroutines * rounds, "cuMemHostUnregister": goroutines * rounds,
		"cuDevicePrimaryCtxRelease": 1,
	}, count)
	require.Greater(t, len(threads), 1, "calls came from several threads")
}

func TestRegisterOverlap(t *testing.T) {
	f := useFake(t)
	d := open(t, 0)
	m := mapping(t, 4<<12)
	r := register(t, d, m[:2<<12])
	_, err := d.Register(m[1<<12:], pin.RegisterOptions{})
	require.ErrorIs(t, err, pin.ErrRegistered)
	next := register(t, d, m[2<<12:]) // neighbours don't overlap
	require.NoError(t, next.Unregister())
	require.NoError(t, r.Unregister())
	again := register(t, d, m)
	require.NoError(t, again.Unregister())
	require.Equal(t, []string{
		initialized, retained(0), registered(m[:2<<12], 1, 0), registered(m[1<<12:], 1, 712), registered(m[2<<12:], 1, 0),
		unregistered(m[2<<12:], 0), unregistered(m, 0), registered(m, 1, 0), unregistered(m, 0),
	}, calls(f))
}
