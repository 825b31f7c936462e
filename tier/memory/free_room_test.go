//go:build linux

package memory

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/tier"
)

// TestFreeRoomIsNotWrittenAfterAKill: opening a segment of a process that was killed wrote to every 64 bytes of its free room, so
// that a large one with few objects was away for many seconds.
func TestFreeRoomIsNotWrittenAfterAKill(t *testing.T) {
	l, err := Open(Options{Name: "level", Dir: t.TempDir(), Size: 1 << 20, MaxObjects: 30})
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	require.NoError(t, put(l, object("a", "", 1000)))
	path := filepath.Join(l.o.Dir, l.o.Name)
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	mark := bytes.Repeat([]byte{1}, len(b)-64<<10)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = f.WriteAt(mark, 64<<10)
	require.NoError(t, err)
	require.NoError(t, f.Close())

	next := killed(t, l).(*Level)
	defer func() { require.NoError(t, next.Close()) }()
	requireContent(t, next, "a", 1000)
	require.NoError(t, next.CheckStructure())
	b, err = os.ReadFile(filepath.Join(next.o.Dir, next.o.Name))
	require.NoError(t, err)
	require.True(t, bytes.Equal(mark, b[64<<10:]), "nothing was written there")
	require.NoError(t, put(next, object("b", "", 900<<10)))
	requireContent(t, next, "b", 900<<10)
}

// TestRoomOfAnObject: the page of the package says how much an object takes.
func TestRoomOfAnObject(t *testing.T) {
	for name, length := range map[string]int{
		"n": 1, strings.Repeat("n", 32): 32, strings.Repeat("n", 33): 33, strings.Repeat("n", 96): 96, strings.Repeat("n", 97): 97,
		strings.Repeat("0f", 31): 32, strings.Repeat("0f", 32): 33, // a zero byte is in front of a hash
	} {
		l := open(t, options(t))
		o := tier.Object{Key: tier.Key{Space: "s", Name: name}, Parent: "p", Tenant: "t", Note: []byte("n"), Size: 640}
		require.NoError(t, put(l, o))
		texts := int64(1 + length + 1 + 2 + 1) // the tenant twice
		require.Equal(t, (o.Size+texts+91+63)/64*64, l.Usage().Bytes, "%d bytes of texts", texts)
	}
}
