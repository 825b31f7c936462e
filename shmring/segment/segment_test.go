package segment

import (
	"crypto/rand"
	"encoding/hex"
	"math"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/fault"
	"github.com/ringcache/ringcache/internal/shmfile"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/sidecar"
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

func create(t *testing.T, o Options) *Segment {
	t.Helper()
	s, err := Create(o)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = s.Unlink()
		require.NoError(t, s.Close())
	})
	return s
}

func path(name string) string { return filepath.Join(shmfile.DefaultDir, name) }

func TestSegmentIsExactlyAsLongAsPythonExpects(t *testing.T) {
	for _, offset := range []int{0, 32} {
		s := create(t, Options{Name: testName(t), RingSize: 1000, DataOffset: offset})
		st, err := os.Stat(path(s.Name()))
		require.NoError(t, err)
		require.Equal(t, int64(1000+offset), st.Size())
		require.Equal(t, os.FileMode(0o600), st.Mode())
		require.Len(t, s.Ring(), 1000)
		require.Len(t, s.Secret(), offset)
		require.Equal(t, 1000+offset, s.Size())
		blocks := st.Sys().(*syscall.Stat_t).Blocks
		require.NotZero(t, blocks, "every page is allocated")
		if offset > 0 {
			require.NotEqual(t, make([]byte, offset), s.Secret())
		}
	}
}

func TestSegmentIsShared(t *testing.T) {
	o := Options{Name: testName(t), RingSize: 100, DataOffset: 32}
	w := create(t, o)
	r, err := Attach(o)
	require.NoError(t, err)
	w.Ring()[99] = 7
	require.Equal(t, byte(7), r.Ring()[99])
	require.Equal(t, w.Secret(), r.Secret())
	require.NoError(t, r.Close())
	_, err = os.Stat(path(o.Name))
	require.NoError(t, err, "a reader that closes does not remove the segment")
}

func TestSegmentDefaultNameIsPythons(t *testing.T) {
	s := create(t, Options{RingSize: 100})
	require.Regexp(t, "^psm_[0-9a-f]{8}$", s.Name())
}

func TestCreateRefusesExisting(t *testing.T) {
	o := Options{Name: testName(t), RingSize: 100}
	s := create(t, o)
	s.Ring()[0] = 1
	_, err := Create(o)
	require.ErrorIs(t, err, ErrExists)
	require.Equal(t, byte(1), s.Ring()[0], "it is left alone")
}

// TestTooSmallMemoryIsAnErrorNotSIGBUS asks for more than any machine has.
func TestTooSmallMemoryIsAnErrorNotSIGBUS(t *testing.T) {
	name := testName(t)
	_, err := Create(Options{Name: name, RingSize: 1 << 50})
	require.ErrorIs(t, err, ErrNoSpace)
	require.NoFileExists(t, path(name), "nothing is left behind")
}

func TestAttachErrors(t *testing.T) {
	o := Options{Name: testName(t), RingSize: 100, DataOffset: 32}
	_, err := Attach(o)
	require.ErrorIs(t, err, ErrNotExist)
	require.ErrorContains(t, err, "writer must create it")

	create(t, o)
	for _, wrong := range []Options{
		{Name: o.Name, RingSize: 101, DataOffset: 32}, // segment too small
		{Name: o.Name, RingSize: 99, DataOffset: 32},  // N disagrees
		{Name: o.Name, RingSize: 100},                 // generation disagrees
	} {
		_, err = Attach(wrong)
		var size *SizeError
		require.ErrorAs(t, err, &size)
		require.ErrorIs(t, err, ErrSize)
		require.Equal(t, int64(132), size.Got)
	}

	require.NoError(t, os.Chmod(path(o.Name), 0o602))
	_, err = Attach(o)
	require.ErrorIs(t, err, ErrUnsafe)
	require.ErrorContains(t, err, "chmod it to 0600")
	require.NoError(t, os.Chmod(path(o.Name), 0o600))

	link := testName(t)
	require.NoError(t, os.Symlink(path(o.Name), path(link)))
	_, err = Attach(Options{Name: link, RingSize: 100, DataOffset: 32})
	require.ErrorIs(t, err, ErrUnsafe)

	fifo := testName(t)
	require.NoError(t, syscall.Mkfifo(path(fifo), 0o600))
	_, err = Attach(Options{Name: fifo, RingSize: 100, DataOffset: 32})
	require.ErrorIs(t, err, ErrUnsafe)

	for _, name := range []string{"", "/", "a/b", "..", "../x", "a\x00b", string(make([]byte, 300))} {
		_, err = Attach(Options{Name: name, RingSize: 100})
		require.ErrorIs(t, err, shmring.ErrInvalid, "%q", name)
	}
	for _, bad := range []Options{{RingSize: 0}, {RingSize: 8}, {RingSize: -1}, {RingSize: 100, DataOffset: -1}, {RingSize: math.MaxInt, DataOffset: 1}} {
		_, err = Create(bad)
		require.ErrorIs(t, err, shmring.ErrInvalid)
	}
}

func TestSegmentCloseAndUnlink(t *testing.T) {
	o := Options{Name: testName(t), RingSize: 100}
	s, err := Create(o)
	require.NoError(t, err)
	require.NoError(t, s.Hold())
	require.ErrorIs(t, s.Close(), ErrBusy)
	s.Ring()[0] = 1 // still mapped
	s.Release()
	require.Panics(t, s.Release)

	require.NoError(t, s.Unlink())
	require.NoFileExists(t, path(o.Name))
	require.NoError(t, s.Unlink(), "gone already")

	// Another server took the name: it is not ours to remove.
	other := create(t, o)
	require.NoError(t, other.Hold())
	require.ErrorIs(t, other.Destroy(), ErrBusy)
	require.FileExists(t, path(o.Name), "busy, so its name stays too")
	other.Release()
	require.NoError(t, s.Unlink())
	require.FileExists(t, path(other.Name()))

	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	require.ErrorIs(t, s.Hold(), ErrClosed)
	require.ErrorIs(t, s.Unlink(), ErrClosed)

	require.NoError(t, other.Destroy())
	require.NoError(t, other.Destroy())
	require.NoFileExists(t, path(o.Name))
}

func TestPrivateSegment(t *testing.T) {
	m := make([]byte, 132)
	_, err := Private(m, Options{RingSize: 100})
	require.ErrorIs(t, err, ErrSize)
	s, err := Private(m, Options{RingSize: 100, DataOffset: 32})
	require.NoError(t, err)
	s.Ring()[0] = 5
	require.Equal(t, byte(5), m[32])
	require.NoError(t, s.Unlink())
	require.NoError(t, s.Close())
	require.ErrorIs(t, s.Hold(), ErrClosed)
}

func TestReadOnlySegment(t *testing.T) {
	o := Options{Name: testName(t), RingSize: 100, ReadOnly: true}
	_, err := Create(o)
	require.ErrorIs(t, err, shmring.ErrInvalid)
	w := create(t, Options{Name: o.Name, RingSize: 100})
	w.Ring()[5] = 7
	r, err := Attach(o)
	require.NoError(t, err)
	require.Equal(t, byte(7), r.Ring()[5])
	require.ErrorIs(t, fault.Guard(func() error { r.Ring()[5] = 8; return nil }), fault.ErrFault)
	require.NoError(t, r.Close())
}
