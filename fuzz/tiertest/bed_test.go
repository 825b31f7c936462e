package tiertest

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
)

// Wrong bytes have to be noticed: those of another object, another size, another place.
func TestContentDiffers(t *testing.T) {
	a := content(key("a"), 100_000)
	require.Equal(t, a, content(key("a"), 100_000))
	for _, other := range [][]byte{content(key("b"), 100_000), content(key("a"), 100_001)} {
		same := 0
		for i := range a {
			if a[i] == other[i] {
				same++
			}
		}
		require.Less(t, same, 2000)
	}
	for _, step := range []int{251, 500, 502, 4096, 65536} {
		for at := 0; at+step+1000 < len(a); at += 777 {
			require.False(t, bytes.Equal(a[at:at+1000], a[at+step:at+step+1000]), "bytes at %d and %d", at, at+step)
		}
	}
	require.Len(t, content(key("a"), 0), 0)
	require.Len(t, content(key("a"), 1), 1)
}

// TestEveryFieldIsCompared, also one that tier.Object gets later.
func TestEveryFieldIsCompared(t *testing.T) {
	o := child("a", "b", 1)
	require.NoError(t, described(o, o))
	empty := o
	empty.Note = []byte{}
	require.NoError(t, described(empty, o), "a note of no bytes is none")
	for _, f := range objectFields {
		if f.Anonymous {
			continue // its fields are in the list, too
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
		require.ErrorContains(t, described(other, o), "has the "+f.Name)
	}
}
