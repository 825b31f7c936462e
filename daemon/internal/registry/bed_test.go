package registry

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ringcache/ringcache/daemon/internal/process"
	"github.com/ringcache/ringcache/fuzz/tiertest"
	"github.com/ringcache/ringcache/tier"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tester is a test, or one of rapid's.
type tester interface {
	require.TestingT
	Helper()
	Cleanup(f func())
	Fatalf(format string, args ...any)
}

// bed is a registry over a memory level without a segment.
type bed struct {
	tester
	memory   *tiertest.Map
	store    *tier.Store
	registry *Registry
	limits   Limits

	mu  sync.Mutex
	now time.Time
}

var ordinary = Limits{Sessions: 40, Leases: 8, Held: 10_000, Longest: time.Hour, Ordinary: time.Minute}

func newBed(t tester, l Limits) *bed {
	t.Helper()
	return newSmallBed(t, l, 0)
}

// newSmallBed is newBed with a capacity of the memory level; 0 is none.
func newSmallBed(t tester, l Limits, capacity int64) *bed {
	t.Helper()
	b := &bed{tester: t, limits: l, now: time.Unix(1_800_000_000, 0)}
	b.memory = tiertest.NewMap(tiertest.MapOptions{Name: "memory", Now: b.clock, Capacity: capacity})
	var err error
	b.store, err = tier.Open(context.Background(), tier.Options{Memory: b.memory})
	require.NoError(t, err)
	b.open()
	t.Cleanup(func() {
		require.NoError(t, b.registry.Check())
		b.registry.Close()
		b.registry.Close()
		require.NoError(t, b.store.Close())
		require.NoError(t, b.memory.Close())
	})
	return b
}

func (b *bed) clock() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now
}

// pass lets time pass, and ends what ends by it.
func (b *bed) pass(d time.Duration) {
	b.mu.Lock()
	b.now = b.now.Add(d)
	b.mu.Unlock()
	b.registry.pass()
}

func (b *bed) open() {
	b.Helper()
	var err error
	b.registry, err = Open(Options{Store: b.store, Memory: b.memory, Grace: 30 * time.Second, Limits: b.limits, Now: b.clock})
	require.NoError(b, err)
}

// reopen ends the registry, and opens the next one over what it left.
func (b *bed) reopen() {
	b.Helper()
	require.NoError(b, b.registry.Check())
	b.registry.Close()
	b.open()
	require.NoError(b, b.registry.Check())
}

// user joins a session with a process.
func (b *bed) user(p *process.Process, session string) *Session {
	b.Helper()
	c, err := b.registry.Enter(p)
	require.NoError(b, err)
	u, err := b.registry.Join(c, "test", session, "test", func() {})
	require.NoError(b, err)
	c.Leave()
	return u
}

// release ends small leases.
func (b *bed) release(u *Session, names ...string) {
	b.Helper()
	rest, err := u.Release(names)
	require.NoError(b, err)
	require.Empty(b, rest)
}

func key(name string) tier.Key { return tier.Key{Space: "space", Name: name} }

func keys(names ...string) []tier.Key {
	out := make([]tier.Key, len(names))
	for i, name := range names {
		out[i] = key(name)
	}
	return out
}

// store stores objects of a thousand bytes.
func (b *bed) put(names ...string) {
	b.Helper()
	for _, name := range names {
		p := []tier.Put{{Object: tier.Object{Key: key(name), Size: 1000}, Bytes: make([]byte, 1000)}}
		b.store.Put(context.Background(), p)
		require.NoError(b, p[0].Err)
	}
}

// TestUnwatchableProcess: whose death can't be noticed has the grace time to come back after each connection.
func TestUnwatchableProcess(t *testing.T) {
	b := newBed(t, ordinary)
	b.put("a")
	u := b.user(process.Unknown(), "session-1")
	reserve := func() {
		p, err := u.Reserve("l", []tier.Object{{Key: key("r"), Size: 10}}, time.Hour)
		require.NoError(t, err)
		require.NoError(t, p[0].Err)
	}
	reserve()
	b.pass(10 * time.Minute)
	require.Len(t, b.registry.Leases(10), 1, "as long as it is connected")
	u.Leave()
	b.pass(29 * time.Second)
	require.Len(t, b.registry.Leases(10), 1)
	u = b.user(process.Unknown(), "session-1") // nothing tells the two apart
	b.pass(10 * time.Minute)
	require.Len(t, b.registry.Leases(10), 1)
	u.Leave()
	u.Leave()
	b.pass(31 * time.Second)
	require.Empty(t, b.registry.Leases(10))
	require.Empty(t, b.store.Leases())
	require.Zero(t, b.registry.Counts().Processes)
	_, err := u.Pin("l", keys("a"), 0, false)
	require.ErrorIs(t, err, ErrTaken)
}

// TestInterestKeepsLeases: a lease that has nothing stays a while for what is pending: the store brings
// it as long as somebody wants it.
func TestInterestKeepsLeases(t *testing.T) {
	b := newBed(t, ordinary)
	b.put("a")
	u, other := b.user(process.Unknown(), "session-1"), b.user(process.Unknown(), "session-2")
	_, err := other.Reserve("w", []tier.Object{{Key: key("r"), Size: 10}}, 0)
	require.NoError(t, err)
	pin := func(name string) error {
		placed, err := u.Pin("l", keys(name), 0, false)
		require.NoError(t, err)
		return placed[0].Err
	}
	require.ErrorIs(t, pin("r"), tier.ErrPending)
	require.Len(t, b.registry.Leases(10), 2)
	require.ErrorIs(t, pin("x"), tier.ErrNotFound)
	require.Len(t, b.registry.Leases(10), 2, "a miss beside it ends nothing")
	b.pass(b.store.InterestTime() + time.Second)
	require.ErrorIs(t, pin("x"), tier.ErrNotFound)
	require.Len(t, b.registry.Leases(10), 1)
}

// TestTakenSession: who has lost a session can do nothing with it.
func TestTakenSession(t *testing.T) {
	b := newBed(t, ordinary)
	b.put("a")
	first := b.user(process.Unknown(), "session-1")
	kicked := false
	first.kick = func() { kicked = true }
	second := b.user(process.Unknown(), "session-1")
	require.True(t, kicked)
	for name, call := range map[string]func() error{
		"Pin":     func() error { _, err := first.Pin("l", keys("a"), 0, false); return err },
		"Get":     func() error { _, err := first.Keys("l", "space"); return err },
		"Reserve": func() error { _, err := first.Reserve("l", nil, 0); return err },
		"Commit":  func() error { _, _, err := first.Commit("l", keys("a"), false, 0); return err },
		"Abort":   func() error { _, err := first.Abort("l", keys("a")); return err },
		"Unpin":   func() error { return first.Unpin("l", keys("a")) },
		"Release": func() error { _, err := first.Release([]string{"l"}); return err },
	} {
		require.ErrorIs(t, call(), ErrTaken, name)
	}
	first.Leave() // of no effect
	_, err := second.Pin("l", keys("a"), 0, false)
	require.NoError(t, err)
	require.Len(t, b.registry.Leases(10), 1)
	require.NoError(t, b.registry.Check())
	b.registry.Close()
	_, err = second.Pin("l", keys("a"), 0, false)
	require.ErrorIs(t, err, ErrClosed)
	second.Leave()
	b.reopen()
	b.pass(time.Minute)
}

// TestClosedStore: a store that is closed under the registry makes it answer ErrClosed.
func TestClosedStore(t *testing.T) {
	b := newBed(t, ordinary)
	b.put("a")
	u := b.user(process.Unknown(), "session-1")
	_, err := u.Pin("l", keys("a"), 0, false)
	require.NoError(t, err)
	require.NoError(t, b.store.Close())
	require.NoError(t, b.memory.Close())
	_, err = u.Pin("l", keys("a"), 0, false)
	require.ErrorIs(t, err, ErrClosed)
	_, err = u.Get("l", keys("a"))
	require.ErrorIs(t, err, ErrClosed)
	_, err = u.Reserve("l", []tier.Object{{Key: key("x")}}, 0)
	require.ErrorIs(t, err, ErrClosed)
	_, _, err = u.Commit("l", keys("a"), false, 0)
	require.ErrorIs(t, err, ErrClosed)
	_, err = u.Abort("l", keys("a"))
	require.ErrorIs(t, err, ErrClosed)
	b.registry.Close()
	b.memory = b.memory.Reopen()
	b.store, err = tier.Open(context.Background(), tier.Options{Memory: b.memory})
	require.NoError(t, err)
	b.open()
	require.Equal(t, 1, b.registry.Counts().Waiting)
	b.pass(time.Minute)
	require.Empty(t, b.registry.Leases(10))
}

var _ tester = (*testing.T)(nil)
