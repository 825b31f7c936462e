//go:build linux

package memory

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/tier"
)

// clock is a time that tests set.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func (c *clock) pass(d time.Duration) { c.at = c.at.Add(d) }

func newClock() *clock { return &clock{time.Unix(1_700_000_000, 0)} }

// options are those of a small level in a folder of the test.
func options(t testing.TB) Options {
	t.Helper()
	return Options{Name: "level", Dir: t.TempDir(), Size: 64 << 10, MaxObjects: 64, MaxLeases: 16, MaxPins: 128}
}

// open opens a level. Its structure is verified when the test ends.
func open(t testing.TB, o Options) *Level {
	t.Helper()
	l, err := Open(o)
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := l.CheckStructure(); err == nil || !errors.Is(err, os.ErrClosed) {
			assert.NoError(t, err)
		}
		assert.NoError(t, l.Close())
	})
	return l
}

// reopen closes a level and opens the next one.
func reopen(t testing.TB, l *Level) *Level {
	t.Helper()
	require.NoError(t, l.CheckStructure())
	require.NoError(t, l.Close())
	return open(t, l.o)
}

func key(name string) tier.Key { return tier.Key{Space: "space", Name: name} }

func object(name, parent string, size int) tier.Object {
	return tier.Object{Key: key(name), Parent: parent, Size: int64(size)}
}

// content is what tests put under a name.
func content(name string, size int) []byte {
	return bytes.Repeat([]byte(name+"."), size/len(name)+1)[:size]
}

func put(l tier.Level, o tier.Object) error {
	puts := []tier.Put{{Object: o, Bytes: content(o.Name, int(o.Size))}}
	l.Put(context.Background(), puts)
	return puts[0].Err
}

func get(l tier.Level, name string) ([]byte, error) {
	gets := []tier.Get{{Key: key(name)}}
	l.Get(context.Background(), gets)
	return gets[0].Bytes, gets[0].Err
}

func requireContent(t testing.TB, l tier.Level, name string, size int) {
	t.Helper()
	b, err := get(l, name)
	require.NoError(t, err)
	require.Equal(t, string(content(name, size)), string(b))
}

func present(l tier.Level, names ...string) (there []string) {
	for _, name := range names {
		if l.Stat(context.Background(), []tier.Key{key(name)})[0].Err == nil {
			there = append(there, name)
		}
	}
	return there
}

func leaseOf(t testing.TB, l tier.MemoryLevel, o tier.LeaseOptions) tier.Lease {
	t.Helper()
	x, err := l.Lease(context.Background(), o)
	require.NoError(t, err)
	return x
}

func keys(names ...string) (all []tier.Key) {
	for _, name := range names {
		all = append(all, key(name))
	}
	return all
}

func requirePlaced(t testing.TB, placed []tier.Placed) {
	t.Helper()
	for _, p := range placed {
		require.NoError(t, p.Err)
	}
}

func requireNone(t testing.TB, errs []error) {
	t.Helper()
	require.NoError(t, errors.Join(errs...), fmt.Sprint(errs))
}
