package tier_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/tiertest"
	"github.com/ringcache/ringcache/tier"
)

// bed is a store over a memory level and two lower ones, which fail as a test wants.
type bed struct {
	*tier.Store
	t            tester
	memory       *tiertest.Map
	maps         [2]*tiertest.Map
	disk, remote *tiertest.Fault
	options      tier.Options
}

// tester is a test, or one of rapid's.
type tester interface {
	require.TestingT
	Helper()
	Context() context.Context
	Fatal(args ...any)
	Cleanup(f func())
}

// newBed opens a store. change may change the options; memory is the capacity of the memory level.
func newBed(t *testing.T, memory int64, change func(*tier.Options)) *bed {
	t.Helper()
	b := openBed(t, memory, change)
	t.Cleanup(b.end)
	return b
}

func openBed(t tester, memory int64, change func(*tier.Options)) *bed {
	t.Helper()
	b := &bed{t: t, memory: tiertest.NewMap(tiertest.MapOptions{Name: "memory", Capacity: memory})}
	for i, name := range []string{"disk", "remote"} {
		b.maps[i] = tiertest.NewMap(tiertest.MapOptions{Name: name})
	}
	b.disk, b.remote = tiertest.NewFault(b.maps[0]), tiertest.NewFault(b.maps[1])
	b.options = tier.Options{
		Memory: b.memory,
		Lower:  []tier.Lower{{Level: b.disk}, {Level: b.remote}},
	}
	if change != nil {
		change(&b.options)
	}
	b.open()
	return b
}

func (b *bed) open() {
	b.t.Helper()
	s, err := tier.Open(b.t.Context(), b.options)
	require.NoError(b.t, err)
	b.Store = s
}

// end closes the store and checks that it pins nothing but the backlog.
func (b *bed) end() {
	assert.Empty(b.t, tier.Check(b.Store))
	assert.NoError(b.t, b.Close())
	assert.Empty(b.t, tier.Check(b.Store), "after Close")
	backlog := b.State().Backlog
	assert.Zero(b.t, b.State().Fetches, "fetches")
	assert.Zero(b.t, b.State().InFlight, "bytes in flight")
	for _, l := range b.memory.Leases() {
		assert.Empty(b.t, l.Reserved, "reservations of lease %q", l.ID)
		if l.Owner == "ringcache store" && (backlog == 0 || l.ID != "ringcache store: pending writes") {
			assert.Empty(b.t, l.Pinned, "pins of lease %q", l.ID)
		}
	}
}

// in runs a test with a clock that stands still while anything runs.
func in(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func key(name string) tier.Key { return tier.Key{Space: "s", Name: name} }

func keys(names ...string) []tier.Key {
	out := make([]tier.Key, len(names))
	for i, name := range names {
		out[i] = key(name)
	}
	return out
}

// content is the bytes that a name has in all tests.
func content(name string, size int64) []byte {
	out := make([]byte, size)
	rand.NewChaCha8(sha256.Sum256([]byte(name))).Read(out)
	return out
}

func object(name, parent string, size int64) tier.Object {
	return tier.Object{Key: key(name), Parent: parent, Size: size}
}

type putter interface {
	Put(ctx context.Context, puts []tier.Put)
}

// put puts an object somewhere.
func put(l putter, name, parent string, size int64) error {
	p := []tier.Put{{Object: object(name, parent, size), Bytes: content(name, size)}}
	l.Put(context.Background(), p)
	return p[0].Err
}

// get reads an object and checks its bytes.
func (b *bed) get(name string) error {
	b.t.Helper()
	g := []tier.Get{{Key: key(name)}}
	b.Get(b.t.Context(), g)
	if g[0].Err == nil {
		require.Equal(b.t, key(name), g[0].Object.Key)
		require.True(b.t, bytes.Equal(content(name, g[0].Object.Size), g[0].Bytes), "the bytes of %s", name)
	}
	return g[0].Err
}

func (b *bed) lease(id string) *tier.StoreLease {
	b.t.Helper()
	l, err := b.Lease(b.t.Context(), tier.LeaseOptions{ID: id, Owner: "test"})
	require.NoError(b.t, err)
	return l
}

// store commits an object under a lease, as a client would.
func (b *bed) store(l *tier.StoreLease, name, parent string, size int64) {
	b.t.Helper()
	placed := l.Reserve([]tier.Object{object(name, parent, size)})
	require.NoError(b.t, placed[0].Err)
	copy(placed[0].Bytes, content(name, size))
	require.NoError(b.t, l.Commit(keys(name))[0])
}

// errs returns the errors of a Pin as text, "" for a hit. It checks the bytes of hits.
func (b *bed) errs(placed []tier.Placed, names ...string) []error {
	b.t.Helper()
	out := make([]error, len(placed))
	for i, p := range placed {
		if out[i] = p.Err; p.Err == nil {
			require.True(b.t, bytes.Equal(content(names[i], p.Object.Size), p.Bytes), "the bytes of %s", names[i])
		}
	}
	return out
}

// pin asks until nothing is pending. It must be called in a bubble of synctest.
func (b *bed) pin(l *tier.StoreLease, names ...string) []error {
	b.t.Helper()
	for range 100 {
		errs := b.errs(l.Pin(keys(names...)), names...)
		pending := false
		for _, err := range errs {
			pending = pending || isPending(err)
		}
		if !pending {
			return errs
		}
		synctest.Wait()
	}
	b.t.Fatal("still pending")
	return nil
}

// has reports which of the levels have an object, such as "memory remote".
func (b *bed) has(name string) string {
	out := ""
	for _, l := range []*tiertest.Map{b.memory, b.maps[0], b.maps[1]} {
		if l.Stat(context.Background(), keys(name))[0].Err == nil {
			if out != "" {
				out += " "
			}
			out += l.Name()
		}
	}
	return out
}

// counter returns what a counter has: "remote promoted", or "remote miss: corrupt".
func (b *bed) counter(what string) int64 {
	for _, c := range b.Counters() {
		name := fmt.Sprintf("%s %s", c.Level, c.Kind)
		if c.Cause != "" {
			name += ": " + c.Cause
		}
		if name == what {
			return c.Count
		}
	}
	return 0
}

// is reports whether a call of a faulty level is one of a method.
func is(c tiertest.Call, method string) bool { return c.Method == method }
