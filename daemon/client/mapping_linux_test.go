package client

import (
	"encoding/binary"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/wire"
	"github.com/ringcache/ringcache/internal/fault"
	"github.com/ringcache/ringcache/internal/shmfile"
)

// segment makes a file as a daemon would, in a folder that stands for /dev/shm.
func segment(t *testing.T, dir string, generation uint64) wire.Segment {
	t.Helper()
	path := filepath.Join(dir, "ringcache")
	_ = os.Remove(path)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, f.Truncate(1<<16))
	_, err = f.WriteAt(binary.LittleEndian.AppendUint64(nil, generation), 0)
	require.NoError(t, err)
	_, inode, err := shmfile.Identity(f)
	require.NoError(t, err)
	return wire.Segment{Name: "ringcache", Size: 1 << 16, Generation: generation, Inode: inode}
}

func TestMapping(t *testing.T) {
	f := newFake(t, same(wire.StatusOK))
	dir := t.TempDir()
	f.change(segment(t, dir, 1))
	c := dial(t, f, Options{Dir: dir})
	m, err := c.Map(t.Context())
	require.NoError(t, err)
	defer m.Close()
	require.Equal(t, *c.Hello().Segment, m.Segment())

	v := wire.Item{Status: wire.StatusReserved, Offset: 64, Size: 5}
	require.NoError(t, m.Write(v, []byte("hello")))
	raw, err := os.ReadFile(filepath.Join(dir, "ringcache"))
	require.NoError(t, err)
	require.Equal(t, "\x00hello\x00", string(raw[63:70]))
	v.Status = wire.StatusHit
	got, err := m.Read([]byte("say "), v)
	require.NoError(t, err)
	require.Equal(t, "say hello", string(got))
	view, err := m.Bytes(v)
	require.NoError(t, err)
	require.Equal(t, []any{5, 5}, []any{len(view), cap(view)})

	require.ErrorIs(t, m.Write(v, []byte("hello")), fs.ErrInvalid, "a hit is not written to")
	require.ErrorIs(t, m.Write(wire.Item{Status: wire.StatusReserved, Size: 5}, []byte("hell")), fs.ErrInvalid)
	for _, bad := range []wire.Item{
		{Status: wire.StatusMiss}, {Status: wire.StatusHit, Size: 1, Levels: []string{"memory"}}, {Status: wire.StatusHit, Size: -1}, {Status: wire.StatusHit, Offset: 1<<16 + 1}, {Status: wire.StatusHit, Offset: 1, Size: 1 << 16},
		{Status: wire.StatusHit, Offset: 1<<64 - 1, Size: 2}, {Status: wire.StatusHit, Offset: 1, Size: 1<<63 - 1},
	} {
		_, err := m.Bytes(bad)
		require.ErrorIs(t, err, fs.ErrInvalid, "%v", bad)
	}
	_, err = m.Bytes(wire.Item{Status: wire.StatusHit, Offset: 1 << 16})
	require.NoError(t, err, "nothing, at the end")

	require.NoError(t, os.Truncate(filepath.Join(dir, "ringcache"), 0))
	_, err = m.Read(nil, v)
	require.ErrorIs(t, err, fault.ErrFault)
	v.Status = wire.StatusReserved
	require.ErrorIs(t, m.Write(v, []byte("hello")), fault.ErrFault)
	require.NoError(t, m.Close())
	require.NoError(t, m.Close())
	_, err = m.Bytes(v)
	require.ErrorIs(t, err, fs.ErrClosed)
}

func TestMapRefuses(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "ringcache")
	for name, c := range map[string]struct {
		spoil func(t *testing.T, s *wire.Segment)
		want  error
		text  string
	}{
		"another file": {func(_ *testing.T, s *wire.Segment) { s.Inode++ }, ErrSegment, "another directory"},
		// Each mount counts inodes for itself, and so names the first segments of two hosts alike.
		"another host's file of the same inode": {func(_ *testing.T, s *wire.Segment) { s.Generation++ }, ErrSegment, "another directory"},

		"cut short":   {func(t *testing.T, _ *wire.Segment) { require.NoError(t, os.Truncate(path, 100)) }, nil, "cut short"},
		"everybody's": {func(t *testing.T, _ *wire.Segment) { require.NoError(t, os.Chmod(path, 0o666)) }, shmfile.ErrUnsafe, ""},
		"a symbolic link": {func(t *testing.T, _ *wire.Segment) {
			require.NoError(t, os.Rename(path, path+"2"))
			require.NoError(t, os.Symlink(path+"2", path))
		}, shmfile.ErrUnsafe, ""},
		"not there":         {func(t *testing.T, _ *wire.Segment) { require.NoError(t, os.Remove(path)) }, fs.ErrNotExist, "containers"},
		"a path as a name":  {func(_ *testing.T, s *wire.Segment) { s.Name = "../ringcache" }, shmfile.ErrName, ""},
		"no size":           {func(_ *testing.T, s *wire.Segment) { s.Size = 0 }, fs.ErrInvalid, ""},
		"size beyond int64": {func(_ *testing.T, s *wire.Segment) { s.Size = 1<<63 - 1 }, nil, "cut short"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, same(wire.StatusOK))
			s := segment(t, dir, 1)
			defer os.Remove(path + "2")
			c.spoil(t, &s)
			f.change(s)
			_, err := dial(t, f, Options{Dir: dir}).Map(t.Context())
			if c.want != nil {
				require.ErrorIs(t, err, c.want)
			}
			require.ErrorContains(t, err, c.text)
		})
	}
}

// TestAnotherSegment: offsets of before are void, so nothing is answered until the client has mapped the
// new one.
func TestAnotherSegment(t *testing.T) {
	f := newFake(t, same(wire.StatusHit))
	dir := t.TempDir()
	f.change(segment(t, dir, 1))
	c, blind := dial(t, f, Options{Dir: dir}), dial(t, f, Options{})
	old, err := c.Map(t.Context())
	require.NoError(t, err)
	defer old.Close()
	pin := wire.Request{Lease: "l", Space: "s", Names: []string{"a"}}

	f.stop()
	f.start(t)
	_, err = c.Pin(t.Context(), pin)
	require.NoError(t, err, "the same segment")

	f.stop()
	f.change(segment(t, dir, 2))
	f.start(t)
	for range 2 {
		_, err = c.Pin(t.Context(), pin)
		require.ErrorIs(t, err, ErrSegment)
	}
	_, err = blind.Pin(t.Context(), pin)
	require.NoError(t, err, "it has mapped nothing")
	m, err := c.Map(t.Context())
	require.NoError(t, err)
	defer m.Close()
	require.Equal(t, uint64(2), m.Segment().Generation)
	require.Equal(t, uint64(1), old.Segment().Generation)
	_, err = c.Pin(t.Context(), pin)
	require.NoError(t, err)

	// Map notices by itself that the daemon was started anew.
	f.stop()
	f.change(segment(t, dir, 3))
	f.start(t)
	third, err := c.Map(t.Context())
	require.NoError(t, err)
	defer third.Close()
	require.Equal(t, uint64(3), third.Segment().Generation)
}
