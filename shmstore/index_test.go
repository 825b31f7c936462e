package shmstore

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestIndexFindsKeys(t *testing.T) {
	x := newIndex()
	all := []string{"", "a", "b", "\x00", "\x00a", "a\x00", "a\x00b", "a\x00b\x00c", "ab", "a\x00\xff"}
	objects := map[string]*Object{}
	for _, text := range all {
		require.Nil(t, x.find(text), "%q", text)
		o := &Object{key: newKey(text)}
		require.Equal(t, text, o.Key())
		require.Equal(t, len(text), o.key.len())
		x.add(o)
		objects[text] = o
	}
	slices.Sort(all)
	require.Equal(t, all, x.keys())
	for i, text := range all {
		require.Same(t, objects[text], x.find(text))
		x.remove(objects[text])
		require.Nil(t, x.find(text))
		require.Equal(t, len(all)-1-i, x.len())
	}
}

// Two keys of one hash do not disturb each other, whichever goes first.
func TestKeysOfOneHash(t *testing.T) {
	for _, first := range []string{"a", "b"} {
		x := newIndex()
		a, b := &Object{key: newKey("a")}, &Object{key: newKey("b")}
		x.byHash[x.hash(b.key)] = a // as if it were the hash of a, too
		x.add(b)
		require.Same(t, b, x.find("b"))
		require.Equal(t, []string{"a", "b"}, x.keys())
		require.Equal(t, 2, x.len())
		if first == "b" {
			x.remove(b)
			require.Nil(t, x.find("b"))
			require.Equal(t, []string{"a"}, x.keys())
			continue
		}
		delete(x.byHash, x.hash(b.key))
		require.Same(t, b, x.find("b"))
		x.remove(b)
		require.Zero(t, x.len())
	}
}
