package folder

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/tiertest"
	"github.com/ringcache/ringcache/tier"
)

// TestLevelOfAMount: the suite over a file system whose folders are old for a while.
func TestLevelOfAMount(t *testing.T) {
	s := mount(t, t.TempDir(), 200*time.Millisecond, 0)
	n := 0
	o := suite(func(t testing.TB) string {
		n++
		dir := filepath.Join(s.dir, strconv.Itoa(n))
		require.NoError(t, os.Mkdir(dir, 0o700))
		return dir
	}, Options{})
	o.Histories, o.Without = 2, []string{
		"goroutines", // those of the file system are counted, too: TestLevel has it
		"history",    // of one goroutine, which is slow here: TestLevel has it
	}
	tiertest.Level(t, o)
}

// TestHostsWithOldFolders: two hosts put, get and delete in a folder that each of them knows as it was a moment ago. What
// is read is always right, and what one has put both find when the caches are old enough.
func TestHostsWithOldFolders(t *testing.T) {
	const believed = 30 * time.Millisecond
	backing := t.TempDir()
	var levels []*Level
	for range 2 {
		levels = append(levels, openAt(t, mount(t, backing, believed, 0).dir, Options{}))
	}
	const names = 20
	var wg sync.WaitGroup
	for host, l := range levels {
		for worker := range 2 {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(host), uint64(worker)))
				for range 100 {
					o, b := testObject(rng.IntN(names))
					switch rng.IntN(4) {
					case 0, 1:
						puts := []tier.Put{{Object: o, Bytes: b}}
						l.Put(context.Background(), puts)
						if err := puts[0].Err; err != nil && !errors.Is(err, tier.ErrPending) {
							t.Errorf("host %d: put: %v", host, err)
						}
					case 2:
						gets := []tier.Get{{Key: o.Key}}
						l.Get(context.Background(), gets)
						switch err := gets[0].Err; {
						case err == nil && !bytes.Equal(gets[0].Bytes, b):
							t.Errorf("host %d: object %v has wrong bytes", host, o.Key)
						case errors.Is(err, tier.ErrCorrupt), err != nil && !errors.Is(err, tier.ErrNotFound) && !errors.Is(err, tier.ErrPending):
							t.Errorf("host %d: get: %v", host, err)
						}
					case 3:
						if err := l.Delete(context.Background(), []tier.Key{o.Key})[0]; err != nil && !errors.Is(err, tier.ErrNotFound) {
							t.Errorf("host %d: delete: %v", host, err)
						}
					}
				}
			})
		}
	}
	wg.Wait()
	for i := range names {
		o, b := testObject(i)
		require.Eventually(t, func() bool { // what is old may be a file that the other host has deleted
			puts := []tier.Put{{Object: o, Bytes: b}}
			levels[i%2].Put(t.Context(), puts)
			gets := []tier.Get{{Key: o.Key}}
			levels[1-i%2].Get(t.Context(), gets)
			return puts[0].Err == nil && gets[0].Err == nil && bytes.Equal(gets[0].Bytes, b)
		}, time.Minute, believed)
	}
}

// TestMountThatHangs: a file system that does not answer keeps no call longer than its context, or the time limit; then
// calls fail at once. No more calls hang than there are workers. Close returns, and the level is back when it answers.
func TestMountThatHangs(t *testing.T) {
	s := mount(t, t.TempDir(), 0, 0)
	o := Options{Timeout: 200 * time.Millisecond, Retry: 10 * time.Millisecond, Workers: 4}
	l := openAt(t, s.dir, o)
	other := openAt(t, s.dir, o)
	object, b := testObject(6)
	require.NoError(t, putOne(l, object, b))

	s.hang()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	gets := []tier.Get{{Key: object.Key}}
	l.Get(ctx, gets)
	require.ErrorIs(t, gets[0].Err, context.DeadlineExceeded, "the caller's time")
	absent, ab := testObject(5)
	require.ErrorIs(t, putOne(l, absent, ab), tier.ErrUnavailable, "the level's time limit")
	require.Eventually(t, func() bool { return l.breaker.Down() != nil }, time.Minute, time.Millisecond)
	for range 1000 {
		require.ErrorIs(t, l.Stat(t.Context(), []tier.Key{object.Key})[0].Err, tier.ErrUnavailable)
		_, err := getOne(l, object.Key)
		require.ErrorIs(t, err, tier.ErrUnavailable)
		require.ErrorIs(t, l.Delete(t.Context(), []tier.Key{object.Key})[0], tier.ErrUnavailable)
	}
	for _, err := range l.List(t.Context(), "") {
		require.ErrorIs(t, err, tier.ErrUnavailable)
	}
	require.ErrorIs(t, l.Ping(t.Context()), tier.ErrUnavailable)
	require.LessOrEqual(t, int(l.inFiles.Load()), o.Workers+cap(l.probes), "calls that hang are bounded")
	require.Positive(t, s.hung())

	found := other.Stat(t.Context(), []tier.Key{object.Key})
	require.ErrorIs(t, found[0].Err, tier.ErrUnavailable)
	require.ErrorIs(t, other.Close(), tier.ErrUnavailable, "Close names what was given up")
	require.ErrorIs(t, other.Stat(t.Context(), []tier.Key{object.Key})[0].Err, fs.ErrClosed)

	late, err := Open(t.Context(), s.dir, o) // a daemon that starts meanwhile
	require.NoError(t, err)
	t.Cleanup(func() { _ = late.Close() })
	require.ErrorIs(t, late.Ping(t.Context()), tier.ErrUnavailable)

	s.answer()
	for _, l := range []*Level{l, late} {
		require.Eventually(t, func() bool {
			got, err := getOne(l, object.Key)
			return err == nil && bytes.Equal(got, b)
		}, time.Minute, time.Millisecond)
	}
	require.Eventually(t, func() bool { return l.inFiles.Load() == 0 && other.inFiles.Load() == 0 }, time.Minute, time.Millisecond)
	require.Eventually(t, func() bool { return len(temporary(t, s.dir)) == 0 }, time.Minute, time.Millisecond,
		"what was abandoned removes its files")
}

// TestHangsInEveryCall: whichever call of the file system is the one that hangs, no call of the level does.
func TestHangsInEveryCall(t *testing.T) {
	for _, op := range []string{"lookup", "open", "read", "create", "write", "rename", "getattr", "setattr", "unlink", "fsync", "opendir"} {
		t.Run(op, func(t *testing.T) {
			s := mount(t, t.TempDir(), 0, 0)
			l := openAt(t, s.dir, Options{Timeout: 100 * time.Millisecond, Retry: 10 * time.Millisecond, Workers: 4, MinAge: 2, Sync: 2})
			object, b := testObject(6)
			require.Eventually(t, func() bool { return putOne(l, object, b) == nil }, time.Minute, time.Millisecond, "the machine may be slow")
			var once sync.Once
			s.failWith(func(at, _ string) syscall.Errno {
				if at == op {
					once.Do(s.hang) // and this call is answered
				}
				return 0
			})
			for i := range 4 {
				next, nb := testObject(i)
				_ = putOne(l, next, nb)
				_, _ = getOne(l, object.Key)
				_ = l.Delete(t.Context(), []tier.Key{next.Key})
				for range l.List(t.Context(), "") {
				}
			}
			_ = l.Ping(t.Context())
			require.Positive(t, s.hung(), "the call is made")
			s.failWith(nil)
			s.answer()
			require.Eventually(t, func() bool {
				next, nb := testObject(7)
				got, err := getOne(l, next.Key)
				return putOne(l, next, nb) == nil && err == nil && bytes.Equal(got, nb)
			}, time.Minute, time.Millisecond)
			require.Eventually(t, func() bool { return l.inFiles.Load() == 0 }, time.Minute, time.Millisecond)
			require.NoError(t, l.Close())
		})
	}
}

// TestStaleHandles: a handle that the server does not know any more is opened anew, once.
func TestStaleHandles(t *testing.T) {
	s := mount(t, t.TempDir(), 0, 0)
	l := openAt(t, s.dir, Options{})
	object, b := testObject(6) // of several blocks
	require.NoError(t, putOne(l, object, b))
	for _, op := range []string{"open", "read", "create"} {
		t.Run(op, func(t *testing.T) {
			for name, get := range map[string]func() ([]byte, error){
				"own memory": func() ([]byte, error) { return getOne(l, object.Key) },
				"To": func() ([]byte, error) {
					var to bytes.Buffer
					gets := []tier.Get{{Key: object.Key, To: &to}}
					l.Get(t.Context(), gets)
					return to.Bytes(), gets[0].Err
				},
			} {
				s.failWith(times(1, op, syscall.ESTALE))
				got, err := get()
				require.NoError(t, err, name)
				require.True(t, bytes.Equal(b, got), name)
			}
			s.failWith(times(1, op, syscall.ESTALE))
			next, nb := testObject(5)
			require.NoError(t, putOne(l, next, nb))
			require.NoError(t, l.Delete(t.Context(), []tier.Key{next.Key})[0])
		})
	}
	s.failWith(times(1_000_000, "read", syscall.ESTALE))
	_, err := getOne(l, object.Key)
	require.ErrorIs(t, err, tier.ErrUnavailable)
	s.failWith(nil)
	got, err := getOne(l, object.Key)
	require.NoError(t, err)
	require.True(t, bytes.Equal(b, got))
	require.Zero(t, l.Usage().Corrupt)
}

// TestErrorsOfAServer: each error of the file system is one of package tier, and damages nothing.
func TestErrorsOfAServer(t *testing.T) {
	s := mount(t, t.TempDir(), 0, 0)
	l := openAt(t, s.dir, Options{Retry: time.Millisecond})
	object, b := testObject(6)
	require.NoError(t, putOne(l, object, b))
	for _, c := range []struct {
		errno syscall.Errno
		want  error
	}{
		{syscall.EIO, tier.ErrUnavailable}, {syscall.ENOTCONN, tier.ErrUnavailable}, {syscall.ETIMEDOUT, tier.ErrUnavailable},
		{syscall.EACCES, tier.ErrUnavailable}, {syscall.EROFS, tier.ErrUnavailable}, {syscall.ENOSPC, tier.ErrFull},
		{syscall.EDQUOT, tier.ErrFull}, {syscall.EFBIG, tier.ErrTooLarge},
	} {
		t.Run(c.errno.Error(), func(t *testing.T) {
			next, nb := testObject(5)
			s.failWith(times(math.MaxInt, "write", c.errno)) // also those of the level's own files, which may come first
			require.ErrorIs(t, putOne(l, next, nb), c.want)
			s.failWith(nil)
			require.Eventually(t, func() bool { return putOne(l, next, nb) == nil }, time.Minute, time.Millisecond)
			require.NoError(t, l.Delete(t.Context(), []tier.Key{next.Key})[0])
			got, err := getOne(l, object.Key)
			require.NoError(t, err)
			require.True(t, bytes.Equal(b, got))
		})
	}
}

// TestServersClock: ages are by the clock of the file server, which may be an hour before or behind that of this host.
func TestServersClock(t *testing.T) {
	for _, skew := range []time.Duration{-time.Hour, time.Hour} {
		t.Run(fmt.Sprint(skew), func(t *testing.T) {
			backing := t.TempDir()
			s := mount(t, backing, 0, skew)
			l := openAt(t, s.dir, Options{Capacity: 1 << 20, MinAge: 10 * time.Minute, grace: time.Millisecond})
			young, old := 0, 0
			for i := range 20 {
				o, b := testObject(i)
				require.NoError(t, putOne(l, o, b))
				if i%2 == 0 {
					setAge(t, l, backing, o.Key, 20*time.Minute)
				}
			}
			require.NoError(t, l.cleanUp(t.Context()))
			for i := range 20 {
				o, _ := testObject(i)
				_, err := getOne(l, o.Key)
				switch {
				case i%2 != 0:
					require.NoError(t, err, "object %d was put just now", i)
					young++
				case err != nil:
					require.ErrorIs(t, err, tier.ErrNotFound)
					old++
				}
			}
			require.Positive(t, old)
			require.Equal(t, 10, young)
		})
	}
}
