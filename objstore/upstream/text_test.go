package upstream_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/objstore/upstream"
	"github.com/ringcache/ringcache/shmstore"
)

func TestTextOfRareErrors(t *testing.T) {
	for key, want := range map[string]string{"plain": "'plain'", "it's": `"it's"`, `a\b`: `"a\\b"`, "a\nb": `"a\nb"`} {
		require.Equal(t, want, upstream.Text(&shmstore.KeyError{Key: key, Err: objstore.ErrNotFound}))
	}
	require.Empty(t, upstream.Text(&shmstore.TooLargeError{Size: 1 << 31, Format: true}), "an OverflowError, whose text depends on the Python")
}
