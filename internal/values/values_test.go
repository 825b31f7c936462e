package values_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ringcache/ringcache/fuzz/tiertest"
	"github.com/ringcache/ringcache/internal/values"
	"github.com/ringcache/ringcache/tier"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bed is a store of a memory level of a mebibyte and a lower level, and what one connection uses of it.
type bed struct {
	*testing.T
	memory *tiertest.Map
	store  *tier.Store
	lease  *values.Lease
	*values.Values
}

// newBed makes a bed. wrap may put a holder before that of the store.
func newBed(t *testing.T, wrap func(values.Holder) values.Holder) *bed {
	t.Helper()
	b := &bed{T: t, memory: tiertest.NewMap(tiertest.MapOptions{Name: "memory", Capacity: 1 << 20})}
	var err error
	b.store, err = tier.Open(t.Context(), tier.Options{
		Memory: b.memory, Lower: []tier.Lower{{Level: tiertest.NewMap(tiertest.MapOptions{Name: "disk"})}},
	})
	require.NoError(t, err)
	b.lease = values.NewLease(b.store, "one")
	var holder values.Holder = b.lease
	if wrap != nil {
		holder = wrap(holder)
	}
	b.Values = values.New(values.Options{Store: b.store, Holder: holder, ID: "one"})
	t.Cleanup(func() {
		assert.Empty(t, b.store.Leases(), "nothing is pinned or reserved between calls")
		b.lease.Close()
		_, _ = b.store.Drain(context.Background())
		assert.NoError(t, b.store.Close())
	})
	return b
}

func object(name string, size int) tier.Object {
	return tier.Object{Key: tier.Key{Space: "s", Name: name}, Size: int64(size)}
}

func (b *bed) put(name string, value []byte) {
	b.Helper()
	require.NoError(b, b.Put(b.Context(), object(name, len(value)), bytes.NewReader(value)))
}

func (b *bed) get(name string) (value []byte) {
	b.Helper()
	require.NoError(b, b.Get(b.Context(), object(name, 0).Key, func(_ tier.Object, p []byte) error {
		value = bytes.Clone(p)
		return nil
	}))
	return value
}

// evict writes all to the lower level, and evicts it from memory.
func (b *bed) evict() {
	b.Helper()
	_, err := b.store.Drain(b.Context())
	require.NoError(b, err)
	for i := range 4 {
		b.put(fmt.Sprint("other", i), make([]byte, 1<<18))
		_, err := b.store.Drain(b.Context())
		require.NoError(b, err)
	}
}

// TestBrokenPutOfAnotherSize: a value is not lost by a Put of another size that breaks off.
func TestBrokenPutOfAnotherSize(t *testing.T) {
	b := newBed(t, nil)
	old := bytes.Repeat([]byte("a"), 1000)
	b.put("k", old)
	for _, size := range []int{10, 100_000} {
		body := io.MultiReader(bytes.NewReader(make([]byte, size-1)), iotest.ErrReader(io.ErrUnexpectedEOF))
		require.ErrorIs(t, b.Put(t.Context(), object("k", size), body), io.ErrUnexpectedEOF)
		require.Equal(t, old, b.get("k"))
		fresh := bytes.Repeat([]byte("b"), size)
		b.put("k", fresh)
		require.Equal(t, fresh, b.get("k"))
		b.put("k", old)
	}
}

// TestPutOverWhatOnlyALowerLevelHas: bytes of the same length that memory does not have any more do not come back.
func TestPutOverWhatOnlyALowerLevelHas(t *testing.T) {
	b := newBed(t, nil)
	b.put("k", bytes.Repeat([]byte("a"), 1000))
	b.evict()
	require.ErrorIs(t, b.memory.Stat(t.Context(), []tier.Key{object("k", 0).Key})[0].Err, tier.ErrNotFound)
	fresh := bytes.Repeat([]byte("b"), 1000)
	b.put("k", fresh)
	require.Equal(t, fresh, b.get("k"))
	b.evict()
	require.Equal(t, fresh, b.get("k"))
}

// odd is a Holder that answers some calls by itself.
type odd struct {
	values.Holder
	reserve, pin []tier.Placed
	commit       []error
}

func (o *odd) Reserve(objects []tier.Object) []tier.Placed {
	if len(o.reserve) > 0 {
		p := o.reserve[:1]
		o.reserve = o.reserve[1:]
		return p
	}
	return o.Holder.Reserve(objects)
}

func (o *odd) Pin(keys []tier.Key) []tier.Placed {
	if len(o.pin) > 0 {
		p := o.pin[:1]
		o.pin = o.pin[1:]
		return p
	}
	return o.Holder.Pin(keys)
}

func (o *odd) Commit(keys []tier.Key) []error {
	if len(o.commit) > 0 {
		errs := o.commit[:1]
		o.commit = o.commit[1:]
		return errs
	}
	return o.Holder.Commit(keys)
}

// TestPutOfWhatIsEvictedMeanwhile: a value that is there when room is reserved, and gone when it is to be compared, is
// stored.
func TestPutOfWhatIsEvictedMeanwhile(t *testing.T) {
	b := newBed(t, func(h values.Holder) values.Holder {
		return &odd{
			Holder: h, reserve: []tier.Placed{{Err: tier.ErrExists}}, pin: []tier.Placed{{Err: tier.ErrNotFound}},
		}
	})
	b.put("k", []byte("value"))
	require.Equal(t, "value", string(b.get("k")))
}

// TestFailedCommitHoldsNothing: what can't be published is not reserved any more.
func TestFailedCommitHoldsNothing(t *testing.T) {
	b := newBed(t, func(h values.Holder) values.Holder { return &odd{Holder: h, commit: []error{tier.ErrUnavailable}} })
	require.ErrorIs(t, b.Put(t.Context(), object("k", 5), bytes.NewReader([]byte("value"))), tier.ErrUnavailable)
	require.Empty(t, b.store.Leases())
	b.put("k", []byte("value"))
	require.Equal(t, "value", string(b.get("k")))
}
