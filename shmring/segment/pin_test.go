//go:build linux

package segment_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/internal/shmfile"
	"github.com/ringcache/ringcache/pin"
	"github.com/ringcache/ringcache/shmring/segment"
)

// driver is a Registrar in plain Go, for programs without cgo. Like the fake driver in C of package
// pin/cuda it is stricter than a real one: registrations must not share a page, and must be mapped
// from their beginning to their end.
type driver struct {
	t *testing.T

	mu         sync.Mutex
	live       map[uintptr]*registration
	log        []string
	calls      map[string]int
	fail       map[string]error // by "register 2": the second call
	registered func()           // if not nil, is called within every register
}

type registration struct {
	d    *driver
	m    []byte
	gone bool
}

func newDriver(t *testing.T) *driver {
	d := &driver{t: t, live: map[uintptr]*registration{}, calls: map[string]int{}, fail: map[string]error{}}
	t.Cleanup(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		assert.Empty(t, d.live, "registrations that nobody ended")
	})
	return d
}

func (d *driver) call(op string, detail string) error {
	d.calls[op]++
	err := d.fail[fmt.Sprintf("%s %d", op, d.calls[op])]
	line := op + detail
	if err != nil {
		line += ": " + err.Error()
	}
	d.log = append(d.log, line)
	return err
}

func (d *driver) Register(m []byte, o pin.RegisterOptions) (pin.Registration, error) {
	if d.registered != nil {
		d.registered()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	detail := fmt.Sprintf(" %d", len(m))
	if o.ReadOnly {
		detail += " read-only"
	}
	if err := d.call("register", detail); err != nil {
		return nil, err
	}
	page := uintptr(os.Getpagesize())
	lo, hi := mem.Addr(m), mem.Addr(m)+(uintptr(len(m))+page-1)/page*page
	assert.Zero(d.t, lo%page, "registered memory begins at a page")
	for _, r := range d.live {
		assert.False(d.t, lo < mem.Addr(r.m)+uintptr(len(r.m)) && mem.Addr(r.m) < hi, "registrations share a page")
	}
	assert.NoError(d.t, mapped(m))
	r := &registration{d: d, m: m}
	d.live[lo] = r
	return r, nil
}

func (r *registration) Pinned() bool {
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	return !r.gone
}

func (r *registration) Unregister() error {
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	if r.gone {
		return nil
	}
	if err := r.d.call("unregister", fmt.Sprintf(" %d", len(r.m))); err != nil {
		return err
	}
	assert.NoError(r.d.t, mapped(r.m), "unregister comes before unmap")
	delete(r.d.live, mem.Addr(r.m))
	r.gone = true
	return nil
}

// mapped reports whether a range is mapped.
func mapped(m []byte) error {
	_, err := mem.Incore(m)
	return err
}

func register(t *testing.T, s *segment.Segment, d pin.Registrar, o segment.PinOptions) *segment.Pin {
	t.Helper()
	p, err := s.Pin(t.Context(), d, o)
	require.NoError(t, err)
	return p
}

func TestPinEndsBeforeTheMapping(t *testing.T) {
	for name, end := range map[string]func(*segment.Segment) error{
		"Close": (*segment.Segment).Close, "Detach": (*segment.Segment).Detach, "Destroy": (*segment.Segment).Destroy, "Leave": (*segment.Segment).Leave,
	} {
		t.Run(name, func(t *testing.T) {
			d := newDriver(t)
			s := create(t, segment.Options{Name: testName(t), RingSize: mib + 5, DataOffset: 32})
			p := register(t, s, d, segment.PinOptions{Require: true})
			require.True(t, p.Pinned())
			require.NoError(t, p.Reason())
			require.Equal(t, []segment.Range{{0, mib + 37}}, p.Ranges())
			require.Equal(t, []segment.Range{{7, mib}}, slices.Collect(p.Split(segment.Range{Offset: 7, Length: mib})))
			st := p.Stats()
			require.Equal(t, mib+37, st.Bytes)
			require.Equal(t, 1, st.Calls)
			require.Positive(t, st.Populate)

			_, err := s.Pin(t.Context(), d, segment.PinOptions{})
			require.ErrorIs(t, err, pin.ErrRegistered)
			require.ErrorContains(t, err, s.Name())
			require.NoError(t, end(s))
			require.NoError(t, s.Close())
			require.Equal(t, []string{fmt.Sprintf("register %d", mib+37), fmt.Sprintf("unregister %d", mib+37)}, d.log)
			_, err = s.Pin(t.Context(), d, segment.PinOptions{})
			require.ErrorIs(t, err, fs.ErrClosed)
		})
	}
}

func TestPinInPieces(t *testing.T) {
	d := newDriver(t)
	page := os.Getpagesize()
	s := create(t, segment.Options{Name: testName(t), RingSize: 10*page - 32 + 1, DataOffset: 32})
	p := register(t, s, d, segment.PinOptions{MaxCall: 4*page + 1})
	require.Equal(t, []segment.Range{{0, 4 * page}, {4 * page, 4 * page}, {8 * page, 2*page + 1}}, p.Ranges())
	require.Equal(t, 3, p.Stats().Calls)
	for _, c := range []struct{ part, want []segment.Range }{
		{[]segment.Range{{0, 1}}, []segment.Range{{0, 1}}},
		{[]segment.Range{{0, 4 * page}}, []segment.Range{{0, 4 * page}}},
		{[]segment.Range{{4 * page, 8}}, []segment.Range{{4 * page, 8}}},
		{[]segment.Range{{4*page - 1, 2}}, []segment.Range{{4*page - 1, 1}, {4 * page, 1}}},
		{[]segment.Range{{1, 10 * page}}, []segment.Range{{1, 4*page - 1}, {4 * page, 4 * page}, {8 * page, 2*page + 1}}},
		{[]segment.Range{{5, 0}}, nil},
	} {
		require.Equal(t, c.want, slices.Collect(p.Split(c.part[0])), "%v", c.part)
	}
	for piece := range p.Split(segment.Range{Offset: 0, Length: 9 * page}) {
		require.Equal(t, segment.Range{Offset: 0, Length: 4 * page}, piece)
		break // which ends the iteration
	}
	require.NoError(t, s.Destroy())
	require.Equal(t, fmt.Sprintf("unregister %d", 2*page+1), d.log[3], "the last registration ends first")
}

func TestPinRollsBack(t *testing.T) {
	refused := errors.New("refused by the driver")
	for _, must := range []bool{true, false} {
		t.Run(fmt.Sprint("require=", must), func(t *testing.T) {
			d := newDriver(t)
			d.fail["register 3"] = refused
			page := os.Getpagesize()
			s := create(t, segment.Options{Name: testName(t), RingSize: 4 * page})
			o := segment.PinOptions{MaxCall: page, Require: must}
			p, err := s.Pin(t.Context(), d, o)
			if must {
				require.ErrorIs(t, err, refused)
				require.Nil(t, p)
			} else {
				require.NoError(t, err)
				require.False(t, p.Pinned())
				require.ErrorIs(t, p.Reason(), refused)
				require.ErrorContains(t, p.Reason(), fmt.Sprintf("%d bytes at %d of %s", page, 2*page, s.Name()))
				require.Empty(t, p.Ranges())
				require.Equal(t, segment.PinStats{}, p.Stats())
				require.Equal(t, []segment.Range{{0, 4 * page}}, slices.Collect(p.Split(segment.Range{Offset: 0, Length: 4 * page})))
			}
			require.Empty(t, d.live)
			s.Ring()[0] = 1 // works as before

			p = register(t, s, d, o) // and can be tried again
			require.True(t, p.Pinned())
			require.NoError(t, s.Destroy())
		})
	}
}

// A driver that does not let go keeps the memory mapped: other memory must not get its addresses.
func TestSegmentStaysMappedWhileTheDriverKeepsIt(t *testing.T) {
	stuck := errors.New("stuck")
	d := newDriver(t)
	d.fail["unregister 1"], d.fail["unregister 2"] = stuck, stuck
	s := create(t, segment.Options{Name: testName(t), RingSize: mib})
	register(t, s, d, segment.PinOptions{})
	m := s.Bytes()
	err := s.Destroy()
	require.ErrorIs(t, err, stuck)
	require.ErrorContains(t, err, "stays mapped")
	require.NoError(t, mapped(m))
	require.ErrorIs(t, s.Hold(), fs.ErrClosed)
	require.NoFileExists(t, path(s.Name()))
	require.ErrorIs(t, s.Close(), stuck)
	require.NoError(t, mapped(m))
	require.NoError(t, s.Close())
	require.Error(t, mapped(m))
	require.NoError(t, s.Close())
	require.Equal(t, 3, d.calls["unregister"])
}

// The same where the rollback of a failed Pin is refused: the segment remembers.
func TestRefusedRollbackIsTriedAtClose(t *testing.T) {
	d := newDriver(t)
	d.fail["register 2"], d.fail["unregister 1"] = syscall.ENOMEM, syscall.EBUSY
	page := os.Getpagesize()
	s := create(t, segment.Options{Name: testName(t), RingSize: 2 * page})
	p := register(t, s, d, segment.PinOptions{MaxCall: page})
	require.ErrorIs(t, p.Reason(), syscall.ENOMEM)
	require.ErrorIs(t, p.Reason(), syscall.EBUSY)
	require.Len(t, d.live, 1)
	_, err := s.Pin(t.Context(), d, segment.PinOptions{})
	require.ErrorIs(t, err, pin.ErrRegistered)
	require.NoError(t, s.Destroy())
	require.Empty(t, d.live)
}

func TestPinIsHonest(t *testing.T) {
	s := create(t, segment.Options{Name: testName(t), RingSize: mib})
	p := register(t, s, pin.Nop{}, segment.PinOptions{})
	require.False(t, p.Pinned())
	require.ErrorContains(t, p.Reason(), "the registrar registers nothing")
	_, err := s.Pin(t.Context(), pin.Nop{}, segment.PinOptions{Require: true})
	require.ErrorContains(t, err, "the registrar registers nothing")

	private, err := segment.Private(nil, segment.Options{RingSize: mib})
	require.NoError(t, err)
	_, err = private.Pin(t.Context(), newDriver(t), segment.PinOptions{})
	require.ErrorIs(t, err, fs.ErrInvalid)
	for _, bytes := range []int{-1, 1, os.Getpagesize() - 1} {
		_, err = s.Pin(t.Context(), newDriver(t), segment.PinOptions{MaxCall: bytes})
		require.ErrorIs(t, err, fs.ErrInvalid)
		require.ErrorContains(t, err, fmt.Sprint(bytes))
	}
}

func TestPinOfAReadOnlyMapping(t *testing.T) {
	w := create(t, segment.Options{Name: testName(t), RingSize: mib})
	r, err := segment.Attach(segment.Options{Name: w.Name(), RingSize: mib, ReadOnly: true})
	require.NoError(t, err)
	d := newDriver(t)
	register(t, r, d, segment.PinOptions{Require: true})
	require.NoError(t, r.Close())
	require.Equal(t, fmt.Sprintf("register %d read-only", mib), d.log[0])
}

// Pages of a disk's file system can't be pinned; the error names what to do.
func TestPinOfADisk(t *testing.T) {
	dir, _ := onDisk(t)
	s := create(t, segment.Options{Name: "disk", Dir: dir, RingSize: mib})
	d := newDriver(t)
	p := register(t, s, d, segment.PinOptions{})
	require.ErrorContains(t, p.Reason(), "keep the segment in /dev/shm")
	require.ErrorIs(t, p.Reason(), errors.ErrUnsupported)
	require.Empty(t, d.log)
	require.NoError(t, s.Destroy())
}

// One process at a time registers a segment: the kernel moves the pages, and two at once get in each
// other's way.
func TestPinWaitsForOtherProcesses(t *testing.T) {
	s := create(t, segment.Options{Name: testName(t), RingSize: mib})
	f, err := os.Open(path(s.Name()))
	require.NoError(t, err)
	defer f.Close()
	unlock, err := shmfile.WaitLock(t.Context(), f)
	require.NoError(t, err)
	d := newDriver(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = s.Pin(ctx, d, segment.PinOptions{})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Empty(t, d.log)
	require.NoError(t, s.Hold(), "the segment is as before")
	s.Release()
	time.AfterFunc(20*time.Millisecond, unlock)
	p := register(t, s, d, segment.PinOptions{})
	require.True(t, p.Pinned())
	require.Positive(t, p.Stats().Wait)

	ok, err := shmfile.TryLock(f)
	require.NoError(t, err)
	require.True(t, ok, "the lock is free after Pin")
	require.NoError(t, s.Destroy())
}

func TestPinIsCancelledBetweenCalls(t *testing.T) {
	d := newDriver(t)
	page := os.Getpagesize()
	s := create(t, segment.Options{Name: testName(t), RingSize: 4 * page})
	ctx, cancel := context.WithCancelCause(t.Context())
	over := errors.New("over")
	d.registered = func() { cancel(over) }
	_, err := s.Pin(ctx, d, segment.PinOptions{MaxCall: page})
	require.ErrorIs(t, err, over)
	require.Equal(t, []string{fmt.Sprint("register ", page), fmt.Sprint("unregister ", page)}, d.log)
	require.NoError(t, s.Destroy())
}

// Whoever ends the segment while Pin runs has to wait, or leaves it to the end of Pin.
func TestEndsDuringPin(t *testing.T) {
	for name, end := range map[string]struct {
		call func(*segment.Segment) error
		want error
	}{
		"Close":   {(*segment.Segment).Close, segment.ErrBusy},
		"Destroy": {(*segment.Segment).Destroy, segment.ErrBusy},
		"Leave":   {(*segment.Segment).Leave, nil},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDriver(t)
			s := create(t, segment.Options{Name: testName(t), RingSize: mib})
			m := s.Bytes()
			var second error
			d.registered = func() {
				d.registered = nil
				_, second = s.Pin(context.Background(), d, segment.PinOptions{})
				assert.ErrorIs(t, end.call(s), end.want)
			}
			p, err := s.Pin(t.Context(), d, segment.PinOptions{})
			require.ErrorIs(t, second, pin.ErrRegistered)
			if end.want != nil {
				require.NoError(t, err)
				require.True(t, p.Pinned())
				require.Len(t, d.live, 1)
				require.NoError(t, s.Destroy())
			} else {
				require.ErrorIs(t, err, fs.ErrClosed)
				require.NoError(t, os.Remove(path(s.Name())))
			}
			require.Empty(t, d.live)
			require.Error(t, mapped(m))
		})
	}
}

func TestPinAndEndsRace(t *testing.T) {
	d := newDriver(t)
	name := testName(t)
	w := create(t, segment.Options{Name: name, RingSize: mib})
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			s, err := segment.Attach(segment.Options{Name: name, RingSize: mib})
			if !assert.NoError(t, err) {
				return
			}
			var ends sync.WaitGroup
			ends.Go(func() {
				_, err := s.Pin(context.Background(), d, segment.PinOptions{MaxCall: mib / 4})
				if err != nil {
					assert.ErrorIs(t, err, fs.ErrClosed)
				}
			})
			ends.Go(func() {
				if i%2 == 0 {
					assert.NoError(t, s.Leave())
				} else if err := s.Close(); err != nil {
					assert.ErrorIs(t, err, segment.ErrBusy)
				}
			})
			ends.Wait()
			assert.NoError(t, s.Close())
			assert.NoError(t, s.Close())
		})
	}
	wg.Wait()
	require.Equal(t, d.calls["register"], d.calls["unregister"])
	t.Logf("%d registrations", d.calls["register"])
	require.NoError(t, w.Destroy())
}
