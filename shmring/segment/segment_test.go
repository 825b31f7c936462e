//go:build linux

package segment_test

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/fault"
	"github.com/ringcache/ringcache/internal/shmfile"
	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/shmring/segment"
)

// testName returns a segment name that no one else has, and removes whatever a
// failing test leaves under it.
func testName(t *testing.T) string {
	t.Helper()
	var b [6]byte
	_, _ = rand.Read(b[:])
	name := "ringcache-test-" + hex.EncodeToString(b[:])
	t.Cleanup(func() {
		_ = os.Remove(filepath.Join(shmfile.DefaultDir, name))
		_ = os.Remove(filepath.Join(shmfile.DefaultDir, name+sidecar.Suffix))
	})
	return name
}

func create(t *testing.T, o segment.Options) *segment.Segment {
	t.Helper()
	s, err := segment.Create(o)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = s.Unlink()
		require.NoError(t, s.Close())
	})
	return s
}

func path(name string) string { return filepath.Join(shmfile.DefaultDir, name) }

func TestSegmentIsExactlyAsLongAsPythonExpects(t *testing.T) {
	for name, offset := range map[string]int{"without a secret": 0, "with a secret": 32} {
		t.Run(name, func(t *testing.T) {
			s := create(t, segment.Options{Name: testName(t), RingSize: 1000, DataOffset: offset})
			st, err := os.Stat(path(s.Name()))
			require.NoError(t, err)
			require.Equal(t, int64(1000+offset), st.Size())
			require.Equal(t, os.FileMode(0o600), st.Mode())
			require.Len(t, s.Ring(), 1000)
			require.Len(t, s.Secret(), offset)
			require.Len(t, s.Bytes(), 1000+offset)
			blocks := st.Sys().(*syscall.Stat_t).Blocks
			require.NotZero(t, blocks, "every page is allocated")
			if offset > 0 {
				require.NotEqual(t, make([]byte, offset), s.Secret())
			}
		})
	}
}

func TestSegmentIsShared(t *testing.T) {
	o := segment.Options{Name: testName(t), RingSize: 100, DataOffset: 32}
	w := create(t, o)
	r, err := segment.Attach(o)
	require.NoError(t, err)
	w.Ring()[99] = 7
	require.Equal(t, byte(7), r.Ring()[99])
	require.Equal(t, w.Secret(), r.Secret())
	require.NoError(t, r.Close())
	_, err = os.Stat(path(o.Name))
	require.NoError(t, err, "a reader that closes does not remove the segment")
}

func TestSegmentDefaultNameIsPythons(t *testing.T) {
	s := create(t, segment.Options{RingSize: 100})
	require.Regexp(t, "^psm_[0-9a-f]{8}$", s.Name())
}

func TestCreateRefusesExisting(t *testing.T) {
	o := segment.Options{Name: testName(t), RingSize: 100}
	s := create(t, o)
	s.Ring()[0] = 1
	_, err := segment.Create(o)
	require.ErrorIs(t, err, fs.ErrExist)
	require.ErrorContains(t, err, o.Name+"; another server uses the name")
	require.Equal(t, byte(1), s.Ring()[0], "it is left alone")
}

// TestTooSmallMemoryIsAnErrorNotSIGBUS asks for more than any machine has.
func TestTooSmallMemoryIsAnErrorNotSIGBUS(t *testing.T) {
	name := testName(t)
	_, err := segment.Create(segment.Options{Name: name, RingSize: 1 << 50})
	require.ErrorIs(t, err, segment.ErrNoSpace)
	require.ErrorContains(t, err, name)
	require.NoFileExists(t, path(name), "nothing is left behind")
}

func TestAttachErrors(t *testing.T) {
	o := segment.Options{Name: testName(t), RingSize: 100, DataOffset: 32}
	_, err := segment.Attach(o)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, o.Name+"; the writer must create it")

	create(t, o)
	for name, wrong := range map[string]segment.Options{
		"segment too small":    {Name: o.Name, RingSize: 101, DataOffset: 32},
		"another size":         {Name: o.Name, RingSize: 99, DataOffset: 32},
		"another vLLM release": {Name: o.Name, RingSize: 100},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := segment.Attach(wrong)
			require.ErrorIs(t, err, segment.ErrSize)
			require.ErrorContains(t, err, fmt.Sprintf("%s has 132 bytes, want %d (%d in front of a ring of %d)",
				o.Name, wrong.RingSize+wrong.DataOffset, wrong.DataOffset, wrong.RingSize))
		})
	}
	for _, name := range []string{"", "/", "a/b", "..", "../x", "a\x00b", string(make([]byte, 300))} {
		t.Run(fmt.Sprintf("name %.9q", name), func(t *testing.T) {
			_, err := segment.Attach(segment.Options{Name: name, RingSize: 100})
			require.ErrorIs(t, err, fs.ErrInvalid)
			if name != "" {
				require.ErrorContains(t, err, fmt.Sprintf("%q: want 1 to 255 bytes without a slash", name))
			} else {
				require.ErrorContains(t, err, "a segment name is needed")
			}
		})
	}
}

func TestAttachRefusesUnsafeFiles(t *testing.T) {
	for name, c := range map[string]struct {
		plant func(t *testing.T, path, segment string)
		what  string
	}{
		"everyone may write it": {func(t *testing.T, path, segment string) {
			require.NoError(t, os.Rename(segment, path))
			require.NoError(t, os.Chmod(path, 0o602))
		}, "writable by everyone (mode 0602); chmod it to 0600"},
		"link": {func(t *testing.T, path, segment string) { require.NoError(t, os.Symlink(segment, path)) }, "is a symbolic link"},
		"fifo": {func(t *testing.T, path, _ string) { require.NoError(t, syscall.Mkfifo(path, 0o600)) }, "is not a regular file (p"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s, err := segment.Create(segment.Options{Name: "s", Dir: dir, RingSize: 100})
			require.NoError(t, err)
			require.NoError(t, s.Close())
			c.plant(t, filepath.Join(dir, "planted"), filepath.Join(dir, "s"))
			_, err = segment.Attach(segment.Options{Name: "planted", Dir: dir, RingSize: 100})
			require.ErrorIs(t, err, segment.ErrUnsafe)
			require.ErrorContains(t, err, filepath.Join(dir, "planted"))
			require.ErrorContains(t, err, c.what)
		})
	}
}

func TestCreateRefusesBadOptions(t *testing.T) {
	for name, c := range map[string]struct {
		o    segment.Options
		what string
	}{
		"no ring":             {segment.Options{}, "a ring of 0 bytes has no room"},
		"no room for a chunk": {segment.Options{RingSize: 8}, "a ring of 8 bytes has no room"},
		"negative ring":       {segment.Options{RingSize: -1}, "a ring of -1 bytes has no room"},
		"negative offset":     {segment.Options{RingSize: 100, DataOffset: -1}, "data offset -1"},
		"overflow":            {segment.Options{RingSize: math.MaxInt, DataOffset: 1}, "data offset 1 in front of a ring of 9223372036854775807"},
		"read-only":           {segment.Options{RingSize: 100, ReadOnly: true}, "a new segment can't be read-only"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := segment.Create(c.o)
			require.ErrorIs(t, err, fs.ErrInvalid)
			require.ErrorContains(t, err, c.what)
		})
	}
}

func TestSegmentCloseAndUnlink(t *testing.T) {
	o := segment.Options{Name: testName(t), RingSize: 100}
	s, err := segment.Create(o)
	require.NoError(t, err)
	require.NoError(t, s.Hold())
	err = s.Close()
	require.ErrorIs(t, err, segment.ErrBusy)
	require.ErrorContains(t, err, o.Name+": 1 views or reservations are open")
	s.Ring()[0] = 1 // still mapped
	s.Release()
	require.Panics(t, s.Release)

	require.NoError(t, s.Unlink())
	require.NoFileExists(t, path(o.Name))
	require.NoError(t, s.Unlink(), "gone already")

	// Another server took the name, so the name stays.
	other := create(t, o)
	require.NoError(t, other.Hold())
	require.ErrorIs(t, other.Destroy(), segment.ErrBusy)
	require.FileExists(t, path(o.Name), "busy, so its name stays too")
	other.Release()
	require.NoError(t, s.Unlink())
	require.FileExists(t, path(other.Name()))

	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	require.ErrorIs(t, s.Hold(), fs.ErrClosed)
	require.ErrorIs(t, s.Unlink(), fs.ErrClosed)

	require.NoError(t, other.Destroy())
	require.NoError(t, other.Destroy())
	require.NoFileExists(t, path(o.Name))
}

func TestPrivateSegment(t *testing.T) {
	m := make([]byte, 132)
	_, err := segment.Private(m, segment.Options{RingSize: 100})
	require.ErrorIs(t, err, segment.ErrSize)
	require.ErrorContains(t, err, "has 132 bytes, want 100")
	s, err := segment.Private(m, segment.Options{RingSize: 100, DataOffset: 32})
	require.NoError(t, err)
	s.Ring()[0] = 5
	require.Equal(t, byte(5), m[32])
	fresh, err := segment.Private(nil, segment.Options{RingSize: 100, DataOffset: 32})
	require.NoError(t, err)
	require.Equal(t, make([]byte, 132), fresh.Bytes())
	_, err = segment.Private(nil, segment.Options{RingSize: -1})
	require.ErrorIs(t, err, fs.ErrInvalid)
	require.ErrorContains(t, err, "a ring of -1 bytes")
	require.NoError(t, s.Unlink())
	require.NoError(t, s.Close())
	require.ErrorIs(t, s.Hold(), fs.ErrClosed)
}

func TestReadOnlySegment(t *testing.T) {
	o := segment.Options{Name: testName(t), RingSize: 100, ReadOnly: true}
	w := create(t, segment.Options{Name: o.Name, RingSize: 100})
	w.Ring()[5] = 7
	r, err := segment.Attach(o)
	require.NoError(t, err)
	require.Equal(t, byte(7), r.Ring()[5])
	require.ErrorIs(t, fault.Guard(func() error { r.Ring()[5] = 8; return nil }), fault.ErrFault)
	require.NoError(t, r.Close())
}
