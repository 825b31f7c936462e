package registry

import (
	"io/fs"
	"reflect"
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
