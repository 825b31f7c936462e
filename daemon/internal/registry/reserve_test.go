package registry

import (
	"io/fs"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/internal/process"
	"github.com/ringcache/ringcache/tier"
)

// TestReservedAgainAsItWas: each field of an object, also one that tier.Object gets later, has to be as it was
// reserved. The cost alone may differ.
func TestReservedAgainAsItWas(t *testing.T) {
	b := newBed(t, ordinary)
	u := b.user(process.Unknown(), "session-1")
	o := tier.Object{Key: key("a"), Size: 1, Note: []byte{}}
	reserve := func(o tier.Object) error {
		placed, err := u.Reserve("l", []tier.Object{o}, time.Hour)
		require.NoError(t, err)
		return placed[0].Err
	}
	require.NoError(t, reserve(o))
	require.NoError(t, reserve(o))
	for _, f := range reflect.VisibleFields(reflect.TypeFor[tier.Object]()) {
		if f.Name == "Key" || f.Name == "Space" || f.Name == "Name" {
			continue // would be another object
		}
		other := o
		switch v := reflect.ValueOf(&other).Elem().FieldByIndex(f.Index); v.Kind() {
		case reflect.String:
			v.SetString("another")
		case reflect.Int64:
			v.SetInt(7)
		case reflect.Slice:
			v.SetBytes([]byte{7})
		default:
			t.Fatalf("a value for the field %s is missing here", f.Name)
		}
		if f.Name == "Cost" {
			require.NoError(t, reserve(other))
		} else {
			require.ErrorIs(t, reserve(other), fs.ErrInvalid, f.Name)
		}
	}
	require.NoError(t, reserve(o))
}

// TestProcessThatDiesWhileItsBytesAreWritten: its reservations end when they are written, and not before.
func TestProcessThatDiesWhileItsBytesAreWritten(t *testing.T) {
	b := newBed(t, ordinary)
	u := b.user(process.Unknown(), "session-1")
	_, err := u.Reserve("l", []tier.Object{{Key: key("a"), Size: 4}, {Key: key("b"), Size: 4}}, time.Hour)
	require.NoError(t, err)
	died := make(chan struct{})
	require.NoError(t, u.Fill("l", keys("a", "not reserved", "b"), func(i int, bytes []byte) {
		require.NotEqual(t, 1, i)
		if i == 0 {
			go func() {
				b.registry.died(u.s.client)
				close(died)
			}()
		}
		require.Len(t, bytes, 4)
		require.Len(t, b.store.Leases()[0].Reserved, 2)
	}))
	<-died
	require.Empty(t, b.registry.Leases(10))
	require.ErrorIs(t, u.Fill("l", keys("a"), func(int, []byte) { t.Error("its reservation has ended") }), ErrTaken)
}

// TestTailDoesNotEvictItsHead: a client that stored three chunks behind a chain that fills memory got room for two of
// them, which was that of the end of the chain.
func TestTailDoesNotEvictItsHead(t *testing.T) {
	b := newSmallBed(t, ordinary, 8000)
	u := b.user(process.Unknown(), "session-1")
	var names []string
	var tail []tier.Object
	for i := 0; len(tail) < 3; i++ {
		names = append(names, strconv.Itoa(i))
		o := tier.Object{Key: key(names[i]), Size: 1000}
		if i > 0 {
			o.Parent = names[i-1]
		}
		if len(tail) > 0 {
			tail = append(tail, o)
			continue
		}
		placed, err := u.Reserve("l", []tier.Object{o}, time.Hour)
		require.NoError(t, err)
		if placed[0].Err != nil {
			require.ErrorIs(t, placed[0].Err, tier.ErrFull)
			tail = append(tail, o)
			continue
		}
		_, _, err = u.Commit("l", keys(names[i]), false, 0)
		require.NoError(t, err)
		u.Release([]string{"l"})
	}
	head := names[:len(names)-3]
	require.Greater(t, len(head), 3)
	placed, err := u.Reserve("l", tail, time.Hour)
	require.NoError(t, err)
	for _, p := range placed {
		require.ErrorIs(t, p.Err, tier.ErrFull)
	}
	for i, f := range b.store.Stat(t.Context(), keys(head...)) {
		require.NoError(t, f.Err, head[i])
	}
}

// Whoever had no answer asks again: meanwhile the room for the parent may have gone.
func TestReservedChildOfAParentWithoutRoom(t *testing.T) {
	b := newBed(t, ordinary)
	u := b.user(process.Unknown(), "session-1")
	child := tier.Object{Key: key("child"), Size: 10, Parent: "parent"}
	before, err := u.Reserve("l", []tier.Object{child}, time.Hour)
	require.NoError(t, err)
	require.NoError(t, before[0].Err)
	parent := tier.Object{Key: key("parent"), Size: 1 << 40}
	placed, err := u.Reserve("l", []tier.Object{parent, child, {Key: key("other"), Size: 10, Parent: "parent"}}, time.Hour)
	require.NoError(t, err)
	require.ErrorIs(t, placed[0].Err, tier.ErrTooLarge)
	require.NoError(t, placed[1].Err)
	require.Equal(t, before[0].Offset, placed[1].Offset)
	require.ErrorIs(t, placed[2].Err, tier.ErrFull)
}
