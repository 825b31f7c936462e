package disk

import (
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/tier"
)

// lying is a layout that says of a file what it is told.
type lying struct {
	plain
	head *Head
	add  *int // bytes by which heads grow from one call to the next
}

func (l lying) ParseHead(path string, file io.ReaderAt, size int64) (Head, error) {
	h, err := l.plain.ParseHead(path, file, size)
	if l.head != nil && err == nil {
		l.head.Object.Key = h.Object.Key
		h = *l.head
	}
	return h, err
}

func (l lying) AppendHead(dst []byte, _ tier.Object, _ uint32) ([]byte, error) {
	*l.add *= 2
	return append(dst, make([]byte, *l.add)...), nil
}

// What a layout says of a file is compared with the file: nobody reads, or makes room, by a wrong size.
func TestLayoutsThatLie(t *testing.T) {
	dir := t.TempDir()
	layout := lying{head: new(Head), add: new(int)}
	l := ready(t, dir, Options{Layout: layout, Space: "space"})
	for _, wrong := range []Head{
		{Object: tier.Object{Size: 9}, Length: 0},
		{Object: tier.Object{Size: 11}, Length: 0},
		{Object: tier.Object{Size: 10}, Length: 1},
		{Object: tier.Object{Size: 11}, Length: -1},
		{Object: tier.Object{Size: -1}, Length: 11},
		{Object: tier.Object{Size: math.MaxInt64}, Length: 11 - math.MaxInt64},
		{Object: tier.Object{Size: 10, Parent: "a\x00"}},
		{Object: tier.Object{Size: 10, Cost: -1}},
	} {
		write(t, dir, "a", "0123456789")
		l.currentRoot().mu.Lock()
		l.currentRoot().complete = false // somebody has put the file there
		l.currentRoot().mu.Unlock()
		*layout.head = wrong
		_, err := get(l, "a")
		require.ErrorIs(t, err, tier.ErrNotFound, "%+v", wrong)
		require.ErrorIs(t, err, tier.ErrCorrupt, "%+v", wrong)
		_, err = os.Stat(filepath.Join(dir, "a", "file"))
		require.ErrorIs(t, err, fs.ErrNotExist)
	}
	*layout.add = 1
	for _, size := range []int{10, blockBytes} {
		require.ErrorIs(t, put(l, objectOf("b", size), make([]byte, size)), fs.ErrInvalid)
		requireMiss(t, stat(l, "b"))
	}
	objects, temporary, _ := files(t, dir)
	require.Empty(t, objects)
	require.Empty(t, temporary)
}
