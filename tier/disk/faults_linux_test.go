package disk

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/fault"
	"github.com/ringcache/ringcache/tier"
)

// failer makes an operation fail from its nth time on, or only then.
type failer struct {
	op   operation
	err  error
	nth  atomic.Int64 // 0 is never
	once bool
	done atomic.Int64
}

func (f *failer) fail(op operation, _ string) error {
	if op != f.op || f.nth.Load() == 0 {
		return nil
	}
	n := f.done.Add(1)
	if n == f.nth.Load() || n > f.nth.Load() && !f.once {
		return f.err
	}
	return nil
}

func (f *failer) arm(op operation, err error, nth int64) {
	f.nth.Store(0)
	f.op, f.err = op, err
	f.done.Store(0)
	f.nth.Store(nth)
}

func (f *failer) disarm() { f.nth.Store(0) }

// TestErrorsOfTheSystem: every error at every operation is one of package tier with a hint, nothing is half
// there afterwards, and the level works again when the error is over.
func TestErrorsOfTheSystem(t *testing.T) {
	hints := map[error]struct {
		is   error
		text string
	}{
		syscall.ENOSPC: {tier.ErrFull, "the file system is full"},
		syscall.EDQUOT: {tier.ErrFull, "the quota of this user"},
		syscall.EFBIG:  {tier.ErrTooLarge, "RLIMIT_FSIZE"},
		syscall.EROFS:  {tier.ErrUnavailable, "mounted read-only"},
		syscall.EIO:    {tier.ErrUnavailable, "the device has failed"},
		syscall.EACCES: {tier.ErrUnavailable, "lacks the permission"},
		syscall.EMFILE: {tier.ErrUnavailable, "raise the limit of open files"},
		syscall.ESTALE: {tier.ErrUnavailable, "mount it again"},
		syscall.EPROTO: {tier.ErrUnavailable, "protocol error"}, // nobody thought of it
	}
	for errno, hint := range hints {
		t.Run(errno.Error(), func(t *testing.T) {
			f := &failer{}
			dir := t.TempDir()
			l := ready(t, dir, Options{fail: f.fail, Sync: SyncFolder})
			small, large := content("small", 100), content("large", 3*blockBytes)
			mustPut(t, l, "there", 1000)
			if hint.is == tier.ErrFull { // else it goes, to make room
				l.Pin(t.Context(), []tier.Key{keyOf("there")}, time.Now().Add(time.Hour))
			}
			before := l.Usage()
			is := func(err error) {
				t.Helper()
				require.ErrorIs(t, err, hint.is)
				require.NotErrorIs(t, err, tier.ErrNotFound)
				require.ErrorContains(t, err, hint.text)
				require.ErrorContains(t, err, dir)
			}
			for _, op := range []operation{opCreate, opWrite, opSync, opRename, opLstat} {
				for nth := int64(1); nth <= 3; nth++ {
					if nth > 1 && op != opWrite && op != opLstat && op != opSync {
						continue
					}
					f.arm(op, errno, nth)
					if nth == 1 {
						is(put(l, objectOf("small", len(small)), small))
						f.arm(op, errno, nth)
					}
					puts := []tier.Put{{Object: objectOf("large", len(large)), From: bytes.NewReader(large)}}
					if l.Put(context.Background(), puts); nth < 3 || op != opLstat {
						is(puts[0].Err)
					}
					f.disarm()
					if puts[0].Err == nil {
						require.NoError(t, l.Delete(t.Context(), []tier.Key{keyOf("large")})[0])
					}
					objects, temporary, _ := files(t, dir)
					require.Empty(t, temporary, "%s %d", op, nth)
					require.Len(t, objects, 1, "%s %d", op, nth)
					require.Equal(t, before, l.Usage(), "%s %d", op, nth)
					requireMiss(t, stat(l, "small"))
					requireMiss(t, stat(l, "large"))
				}
			}
			for _, op := range []operation{opOpen, opRead} {
				f.arm(op, errno, 1)
				_, err := get(l, "there")
				is(err)
				f.disarm()
				mustGet(t, l, "there", 1000)
			}
			if hint.is != tier.ErrFull {
				f.arm(opRemove, errno, 1)
				is(l.Delete(t.Context(), []tier.Key{keyOf("there")})[0])
				f.disarm()
			}
			mustGet(t, l, "there", 1000)
			require.Equal(t, before, l.Usage())
			mustPut(t, l, "small", len(small))
			mustPut(t, l, "large", len(large))
			mustGet(t, l, "large", len(large))
		})
	}
}

// A search that fails leaves a root in which every object is found, and is done again.
func TestSearchFails(t *testing.T) {
	for _, op := range []operation{opReadDir, opOpen, opRead, opLstat} {
		t.Run(string(op), func(t *testing.T) {
			dir := t.TempDir()
			l := ready(t, dir, Options{})
			for i := range 20 {
				mustPut(t, l, fmt.Sprint(i), 100)
			}
			require.NoError(t, l.Close())
			f := &failer{once: true}
			f.arm(op, syscall.EIO, 1)
			l = open(t, dir, Options{fail: f.fail, rescan: 1})
			r := l.currentRoot()
			<-r.indexed
			for i := range 20 {
				mustGet(t, l, fmt.Sprint(i), 100)
			}
			for !l.Indexed().Complete { // it is done again after a nanosecond
				require.NoError(t, stat(l, "3"))
			}
			require.NoError(t, l.WaitIndex(t.Context()))
			require.EqualValues(t, 20, l.Usage().Objects)
			require.Zero(t, l.Usage().Corrupt, "an error of the device is no damage")
		})
	}
}

// A damaged file that can't be taken away is a miss all the same.
func TestDamageOnReadOnlyMedium(t *testing.T) {
	f := &failer{}
	dir := t.TempDir()
	l := ready(t, dir, Options{fail: f.fail})
	mustPut(t, l, "a", 100)
	flip(t, fileOf(t, dir, "a"), 100)
	f.arm(opRemove, syscall.EROFS, 1)
	_, err := get(l, "a")
	require.ErrorIs(t, err, tier.ErrCorrupt)
	require.ErrorIs(t, err, tier.ErrNotFound)
	requireMiss(t, stat(l, "a"))
	f.disarm()
	mustPut(t, l, "a", 100)
	mustGet(t, l, "a", 100)
}

// A victim whose file can't be removed stays, and what needed its room is refused.
func TestEvictionFails(t *testing.T) {
	f := &failer{}
	l := ready(t, t.TempDir(), Options{Layout: noFolders{}, fail: f.fail, Capacity: 4 * 4096})
	for i := range 4 {
		mustPut(t, l, fmt.Sprint(i), 1000)
	}
	f.arm(opRemove, syscall.EIO, 1)
	require.ErrorIs(t, put(l, objectOf("new", 1000), content("new", 1000)), tier.ErrUnavailable)
	f.disarm()
	for i := range 4 {
		mustGet(t, l, fmt.Sprint(i), 1000)
	}
	requireMiss(t, stat(l, "new"))
	require.Zero(t, l.Usage().Evicted)
	mustPut(t, l, "new", 1000)
	require.EqualValues(t, 1, l.Usage().Evicted)
}

// TestFullFileSystem: a real one of 1 MiB.
func TestFullFileSystem(t *testing.T) {
	if !fault.InChild(t, fault.OwnMounts()) {
		return
	}
	dir := t.TempDir()
	fault.Mount(t, dir, "size=1m")
	l := ready(t, filepath.Join(dir, "root"), Options{})
	stored := map[string]int{}
	for i := range 60 { // without a capacity: what is there goes when the file system is full
		name := fmt.Sprint(i)
		puts := []tier.Put{{Object: objectOf(name, 50_000), Bytes: content(name, 50_000)}}
		if i%2 == 1 {
			puts[0].From, puts[0].Bytes = bytes.NewReader(puts[0].Bytes), nil
		}
		l.Put(t.Context(), puts)
		require.NoError(t, puts[0].Err)
		stored[name] = 50_000
	}
	u := l.Usage()
	require.NotZero(t, u.Evicted)
	require.EqualValues(t, 60, u.Evicted+u.Objects)
	for name, size := range stored {
		if b, err := get(l, name); err == nil {
			require.True(t, bytes.Equal(content(name, size), b))
		} else {
			requireMiss(t, err)
		}
	}
	require.ErrorIs(t, put(l, objectOf("large", 2<<20), make([]byte, 2<<20)), tier.ErrFull)
	_, temporary, _ := files(t, filepath.Join(dir, "root"))
	require.Empty(t, temporary)

	// Somebody else has filled it, and nothing of ours is left to go.
	for o, err := range l.List(t.Context(), "") {
		require.NoError(t, err)
		require.NoError(t, l.Delete(t.Context(), []tier.Key{o.Key})[0])
	}
	fill, err := os.Create(filepath.Join(dir, "fill"))
	require.NoError(t, err)
	for err == nil {
		_, err = fill.Write(make([]byte, 4096))
	}
	require.NoError(t, fill.Close())
	for _, size := range []int{1, 50_000, 500_000} {
		err = put(l, objectOf("more", size), make([]byte, size))
		require.ErrorIs(t, err, tier.ErrFull)
		require.ErrorContains(t, err, "the file system is full")
		requireMiss(t, stat(l, "more"))
	}
	_, temporary, _ = files(t, filepath.Join(dir, "root"))
	require.Empty(t, temporary)
	require.NoError(t, os.Remove(fill.Name()))
	mustPut(t, l, "more", 500_000)
	mustGet(t, l, "more", 500_000)
}

// TestReadOnlyMount: a real one.
func TestReadOnlyMount(t *testing.T) {
	if !fault.InChild(t, fault.OwnMounts()) {
		return
	}
	dir := t.TempDir()
	fault.Mount(t, dir, "size=1m")
	root := filepath.Join(dir, "root")
	l := ready(t, root, Options{})
	mustPut(t, l, "a", 1000)
	require.NoError(t, syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY, ""))
	err := put(l, objectOf("b", 1), []byte{1})
	require.ErrorIs(t, err, tier.ErrUnavailable)
	require.ErrorContains(t, err, "mounted read-only")
	require.ErrorIs(t, l.Delete(t.Context(), []tier.Key{keyOf("a")})[0], tier.ErrUnavailable)
	mustGet(t, l, "a", 1000)
	require.NoError(t, l.Close())
	l = ready(t, root, Options{}) // it reads, and would write again after a remount
	mustGet(t, l, "a", 1000)
	require.ErrorIs(t, put(l, objectOf("b", 1), []byte{1}), tier.ErrUnavailable)
	require.NoError(t, l.Close())
	_, err = Open(filepath.Join(dir, "new"), Options{})
	require.ErrorIs(t, err, tier.ErrUnavailable)
	require.ErrorContains(t, err, "mounted read-only")
	r := ready(t, root, Options{ReadOnly: true})
	mustGet(t, r, "a", 1000)
	require.EqualValues(t, 1, r.Usage().Objects)
	require.NoError(t, syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_BIND, ""))
	l = ready(t, root, Options{})
	mustPut(t, l, "b", 1)
}

// TestNoDescriptors: a process without descriptors has errors that name the reason, and loses nothing.
func TestNoDescriptors(t *testing.T) {
	dir := t.TempDir()
	l := ready(t, dir, Options{})
	mustPut(t, l, "a", 1000)
	restore := fault.LimitDescriptors(t, 0)
	_, err := get(l, "a")
	putErr := put(l, objectOf("b", 1), []byte{1})
	restore()
	for _, err := range []error{err, putErr} {
		require.ErrorIs(t, err, tier.ErrUnavailable)
		require.NotErrorIs(t, err, tier.ErrNotFound)
		require.ErrorContains(t, err, "raise the limit of open files")
	}
	mustGet(t, l, "a", 1000)
	mustPut(t, l, "b", 1)
}

// Open files are bounded, whatever the batches.
func TestDescriptorsAreBounded(t *testing.T) {
	var most, now atomic.Int64
	l := ready(t, t.TempDir(), Options{Workers: 3})
	var puts []tier.Put
	for i := range 100 {
		puts = append(puts, tier.Put{Object: objectOf(fmt.Sprint(i), 2*blockBytes),
			Bytes: content(fmt.Sprint(i), 2*blockBytes)})
	}
	l.Put(t.Context(), puts)
	gets := make([]tier.Get, len(puts))
	before := len(fault.OpenDescriptors(t))
	for i := range gets {
		require.NoError(t, puts[i].Err)
		gets[i] = tier.Get{Key: puts[i].Object.Key, Into: func(o tier.Object) ([]byte, error) {
			for n := now.Add(1); ; {
				old := most.Load()
				if n <= old || most.CompareAndSwap(old, n) {
					break
				}
			}
			if open := len(fault.OpenDescriptors(t)); open > before+4 {
				t.Errorf("%d files are open, and were %d before", open, before)
			}
			defer now.Add(-1)
			return make([]byte, o.Size), nil
		}}
	}
	l.Get(t.Context(), gets)
	for i := range gets {
		require.NoError(t, gets[i].Err)
		require.True(t, bytes.Equal(puts[i].Bytes, gets[i].Bytes))
	}
	require.LessOrEqual(t, most.Load(), int64(3))
	require.Len(t, fault.OpenDescriptors(t), before)
}

// The folder of an object is removed by somebody in the middle of everything.
func TestFoldersThatGo(t *testing.T) {
	dir := t.TempDir()
	l := ready(t, dir, Options{})
	for i := range 50 {
		mustPut(t, l, fmt.Sprint(i), 100)
		if rand.IntN(3) == 0 {
			require.NoError(t, os.RemoveAll(filepath.Join(dir, "s-space")))
		}
	}
	left := 0
	for i := range 50 {
		if _, err := get(l, fmt.Sprint(i)); err != nil {
			requireMiss(t, err)
		} else {
			left++
		}
	}
	require.EqualValues(t, left, l.Usage().Objects)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, tempDir)))
	require.ErrorIs(t, put(l, objectOf("x", 1), []byte{1}), tier.ErrUnavailable)
	names := slices.Collect(func(yield func(string) bool) {
		for o := range l.List(t.Context(), "") {
			if !yield(o.Name) {
				return
			}
		}
	})
	require.Len(t, names, left)
}

// A file of others that is next to nothing but holes is foreign: nobody takes memory for it. A small one is
// read.
func TestFileOfHolesIsAStranger(t *testing.T) {
	dir := t.TempDir()
	for name, size := range map[string]int64{"huge": 1 << 40, "small": 1 << 20} {
		path := filepath.Join(dir, name+".file")
		require.NoError(t, os.WriteFile(path, make([]byte, 4096), 0o600))
		require.NoError(t, os.Truncate(path, size))
	}
	l := ready(t, dir, Options{Layout: flat{}, Space: "space", Shared: true})
	require.EqualValues(t, 1, l.Indexed().Foreign)
	_, err := get(l, "huge")
	requireMiss(t, err)
	requireMiss(t, stat(l, "huge"))
	require.FileExists(t, filepath.Join(dir, "huge.file"))
	b, err := get(l, "small")
	require.NoError(t, err)
	require.Len(t, b, 1<<20)
}
