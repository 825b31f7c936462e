package disk

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/tiertest"
	"github.com/ringcache/ringcache/tier"
)

// onDisk is what the object files of a root take, in blocks of 4096.
func onDisk(t testing.TB, dir string) (sum int64) {
	t.Helper()
	objects, _, _ := files(t, dir)
	for _, p := range objects {
		info, err := os.Stat(filepath.Join(dir, p))
		require.NoError(t, err)
		sum += (info.Size() + 4095) / 4096 * 4096
	}
	return sum
}

// Bytes are counted in blocks, and the capacity holds on the medium.
func TestCapacityInBlocks(t *testing.T) {
	dir := t.TempDir()
	l := ready(t, dir, Options{Layout: noFolders{}, Capacity: 10 * 4096})
	require.EqualValues(t, 4096, l.currentRoot().x.block, "the test has to know what files take")
	for i := range 25 {
		mustPut(t, l, fmt.Sprint(i), 1)
		require.LessOrEqual(t, onDisk(t, dir), int64(10*4096))
	}
	require.Equal(t, tier.Usage{Objects: 10, Bytes: 10 * 4096, Capacity: 10 * 4096, Evicted: 15,
		Tenants: map[string]int64{}}, l.Usage())
	require.ErrorIs(t, put(l, objectOf("large", 10*4096-63), make([]byte, 10*4096-63)), tier.ErrTooLarge)
	mustPut(t, l, "all", 10*4096-64)
	require.EqualValues(t, 1, l.Usage().Objects)
	require.Equal(t, int64(10*4096), onDisk(t, dir))
}

// What costs much stays, per byte, if nothing else differs.
func TestCheapObjectsGo(t *testing.T) {
	l := ready(t, t.TempDir(), Options{Layout: noFolders{}, Capacity: 20 * 4096})
	for i := range 20 {
		o := objectOf(fmt.Sprint(i), 100)
		o.Cost = time.Duration(1+i%2*1000) * time.Millisecond
		require.NoError(t, put(l, o, content(o.Name, 100)))
	}
	for i := range 10 {
		o := objectOf(fmt.Sprint("new ", i), 100)
		o.Cost = time.Hour
		require.NoError(t, put(l, o, content(o.Name, 100)))
	}
	for i := range 20 {
		if i%2 == 1 {
			require.NoError(t, stat(l, fmt.Sprint(i)))
		} else {
			requireMiss(t, stat(l, fmt.Sprint(i)))
		}
	}
}

// A root that is larger than its capacity when it is opened shrinks, leaves first.
func TestSmallerCapacity(t *testing.T) {
	dir := t.TempDir()
	l := ready(t, dir, Options{Layout: noFolders{}})
	for i := range 40 {
		o := objectOf(fmt.Sprint(i), 100)
		if i%4 > 0 {
			o.Parent = fmt.Sprint(i - 1)
		}
		require.NoError(t, put(l, o, content(o.Name, 100)))
	}
	require.NoError(t, l.Close())
	l = ready(t, dir, Options{Layout: noFolders{}, Capacity: 21 * 4096})
	for l.Usage().Bytes > 21*4096 { // the search is over, what is too much goes
		require.NoError(t, t.Context().Err())
	}
	require.EqualValues(t, 19, l.Usage().Evicted)
	for i := range 40 {
		if i%4 > 0 && stat(l, fmt.Sprint(i)) == nil {
			require.NoError(t, stat(l, fmt.Sprint(i-1)), "the parent of %d", i)
		}
	}
}

// Of a chain of 23 on a disk of 20 blocks the first 20 are stored, and the end is refused, however often it is tried. What
// goes for another chain with the same beginning is the end of the first one.
func TestChainThatDoesNotFit(t *testing.T) {
	l := ready(t, t.TempDir(), Options{Layout: noFolders{}, Capacity: 20 * 4096})
	var puts []tier.Put
	for i := range 23 {
		o := objectOf(fmt.Sprint(i), 100)
		if i > 0 {
			o.Parent = fmt.Sprint(i - 1)
		}
		puts = append(puts, tier.Put{Object: o, Bytes: content(o.Name, 100)})
	}
	for range 3 {
		l.Put(t.Context(), puts)
		for i, p := range puts {
			if i < 20 {
				require.NoError(t, p.Err, i)
			} else {
				require.ErrorIs(t, p.Err, tier.ErrFull, i)
			}
		}
	}
	require.Zero(t, l.Usage().Evicted)
	for i := range 5 {
		o := objectOf(fmt.Sprint("other ", i), 100)
		if o.Parent = fmt.Sprint("other ", i-1); i == 0 {
			o.Parent = "9"
		}
		require.NoError(t, put(l, o, content(o.Name, 100)))
	}
	for i := range 20 {
		if i < 15 {
			require.NoError(t, stat(l, fmt.Sprint(i)), i)
		} else {
			requireMiss(t, stat(l, fmt.Sprint(i)))
		}
	}
}

// An ancestor that the search has not reached yet stays as well, as does what it stands on.
func TestAncestorsBeforeTheIndex(t *testing.T) {
	dir := t.TempDir()
	l := ready(t, dir, Options{Layout: noFolders{}})
	for i := range 8 {
		o := objectOf(fmt.Sprint(i), 100)
		if i > 0 {
			o.Parent = fmt.Sprint(i - 1)
		}
		require.NoError(t, put(l, o, content(o.Name, 100)))
	}
	require.NoError(t, l.Close())
	block, unblock := gate()
	defer unblock()
	f := func(op operation, p string) error {
		if op == opReadDir {
			<-block // the search stands still
		}
		return nil
	}
	l = open(t, dir, Options{Layout: noFolders{}, Capacity: 9 * 4096, fail: f})
	for i := range 8 {
		require.NoError(t, stat(l, fmt.Sprint(7-i))) // known to the index, children first
	}
	child := objectOf("child", 100)
	child.Parent = "7"
	require.NoError(t, put(l, child, content("child", 100)))
	child.Name, child.Parent = "grandchild", "child"
	require.ErrorIs(t, put(l, child, content("grandchild", 100)), tier.ErrFull)
	unblock()
	require.NoError(t, l.WaitIndex(t.Context()))
	for i := range 8 {
		mustGet(t, l, fmt.Sprint(i), 100)
	}
}

// An object of which the index does not know yet that it has children is no leaf for what stands on it.
func TestUnknownChildrenBeforeTheIndex(t *testing.T) {
	dir := t.TempDir()
	l := ready(t, dir, Options{Layout: noFolders{}})
	for i := range 4 {
		o := objectOf(fmt.Sprint(i), 100)
		o.Cost = 1
		if i > 0 {
			o.Parent = fmt.Sprint(i - 1)
		}
		require.NoError(t, put(l, o, content(o.Name, 100)))
	}
	require.NoError(t, l.Close())
	block, unblock := gate()
	defer unblock()
	l = open(t, dir, Options{Layout: noFolders{}, Capacity: 9 * 4096, fail: func(op operation, _ string) error {
		if op == opReadDir {
			<-block
		}
		return nil
	}})
	require.NoError(t, stat(l, "0"))
	for i := range 8 {
		o := objectOf(fmt.Sprint("dear ", i), 100)
		o.Cost = time.Hour
		require.NoError(t, put(l, o, content(o.Name, 100)))
	}
	require.Zero(t, l.Usage().Evicted)
	child := objectOf("child", 100)
	child.Parent = "3"
	require.NoError(t, put(l, child, content("child", 100)))
	require.EqualValues(t, 4, l.Usage().Evicted)
	for i := range 4 {
		mustGet(t, l, fmt.Sprint(i), 100)
	}
	unblock()
}

// What was pinned stays until then: it does not go for room, nor by Delete.
func TestPin(t *testing.T) {
	now := time.Now()
	dir := t.TempDir()
	l := ready(t, dir, Options{Layout: noFolders{}, Capacity: 4 * 4096, now: func() time.Time { return now }})
	ctx := t.Context()
	for i := range 4 {
		mustPut(t, l, fmt.Sprint(i), 100)
	}
	keys := []tier.Key{keyOf("0"), keyOf("absent"), keyOf("1")}
	found := l.Pin(ctx, keys, now.Add(time.Hour))
	require.NoError(t, found[0].Err)
	require.Equal(t, "0", found[0].Object.Name)
	requireMiss(t, found[1].Err)
	require.NoError(t, found[2].Err)
	l.Pin(ctx, keys[:1], now.Add(time.Minute)) // the later counts
	l.Pin(ctx, keys[2:], now.Add(2*time.Hour))
	require.EqualValues(t, 2*4096, l.Usage().Held)
	for i := range 20 {
		mustPut(t, l, fmt.Sprint("new ", i), 100)
	}
	mustGet(t, l, "0", 100)
	mustGet(t, l, "1", 100)
	require.ErrorIs(t, l.Delete(ctx, keys[:1])[0], tier.ErrInUse)
	require.ErrorIs(t, put(l, objectOf("large", 3*4000), make([]byte, 3*4000)), tier.ErrFull)
	require.EqualValues(t, 4, l.Usage().Objects, "what is refused evicts nothing")

	now = now.Add(time.Hour)
	require.EqualValues(t, 4096, l.Usage().Held)
	require.NoError(t, l.Delete(ctx, keys[:1])[0])
	require.ErrorIs(t, l.Delete(ctx, keys[2:])[0], tier.ErrInUse)

	flip(t, flatFileOf(t, dir, "1"), 100)
	_, err := get(l, "1")
	require.ErrorIs(t, err, tier.ErrCorrupt, "damage ends a promise")
	require.Zero(t, l.Usage().Held)
	mustPut(t, l, "1", 100)
	require.NoError(t, l.Delete(ctx, keys[2:])[0])
}

// Nobody is pinned what goes at the same time.
func TestPinsRaceWithEviction(t *testing.T) {
	l := ready(t, t.TempDir(), Options{Layout: noFolders{}, Capacity: 8 * 4096})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 400 {
			_ = put(l, objectOf(fmt.Sprint(i), 10), content(fmt.Sprint(i), 10))
		}
	}()
	pins := 0
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		name := fmt.Sprint(rand.IntN(400))
		if f := l.Pin(context.Background(), []tier.Key{keyOf(name)}, time.Now().Add(time.Hour)); f[0].Err == nil {
			mustGet(t, l, name, 10)
			pins++
			mustGet(t, l, name, 10)
		}
		if pins == 5 {
			break
		}
	}
	<-done
}

// Young files stay, whatever needs their room; a look makes a file young again.
func TestMinAge(t *testing.T) {
	now := time.Now()
	l := ready(t, t.TempDir(), Options{Layout: noFolders{}, Capacity: 4 * 4096, MinAge: time.Hour,
		now: func() time.Time {
			return now
		}})
	for i := range 4 {
		mustPut(t, l, fmt.Sprint(i), 100)
	}
	require.ErrorIs(t, put(l, objectOf("new", 1), []byte{1}), tier.ErrFull)
	now = now.Add(61 * time.Minute)
	require.NoError(t, stat(l, "0"))
	mustGet(t, l, "1", 100)
	for _, name := range []string{"new 0", "new 1"} {
		mustPut(t, l, name, 100)
		now = now.Add(time.Second)
	}
	mustGet(t, l, "0", 100)
	mustGet(t, l, "1", 100)
	requireMiss(t, stat(l, "2"))
	requireMiss(t, stat(l, "3"))
}

// A file from the future is not young for ever.
func TestFileFromTheFuture(t *testing.T) {
	dir := t.TempDir()
	l := ready(t, dir, Options{Layout: noFolders{}})
	mustPut(t, l, "a", 1)
	require.NoError(t, l.Close())
	future := time.Now().AddDate(10, 0, 0)
	require.NoError(t, os.Chtimes(flatFileOf(t, dir, "a"), future, future))
	l = ready(t, dir, Options{Layout: noFolders{}, Capacity: 4096, MinAge: time.Hour})
	mustPut(t, l, "b", 1)
	require.ErrorIs(t, put(l, objectOf("c", 1), []byte{1}), tier.ErrFull)
}

// What a complete index forgets it forgets: the list of removed files does not grow for ever.
func TestRemovedFilesAreForgotten(t *testing.T) {
	l := ready(t, t.TempDir(), Options{Layout: noFolders{}, Capacity: 2 * 4096})
	for i := range 20 {
		mustPut(t, l, fmt.Sprint(i), 1)
		if i%3 == 0 {
			require.NoError(t, l.Delete(t.Context(), []tier.Key{keyOf(fmt.Sprint(i))})[0])
		}
	}
	x := l.currentRoot().x
	require.Empty(t, x.removed)
	require.Empty(t, x.holds)
	require.Empty(t, x.pins)
	require.Empty(t, x.children)
	require.Len(t, x.entries, int(l.Usage().Objects))
}

// Of many objects, nearly the cheapest go: a sample is enough.
func TestSampleIsGood(t *testing.T) {
	x := newIndex(4096)
	const n = 5000
	ranks := map[id]int{}
	for i, rank := range rand.Perm(n) {
		e := entryOf(fmt.Sprint(i))
		e.bytes = int64(n - rank) // what is large costs little per byte
		ranks[e.id] = rank
		x.insert(e)
		x.makePresent(e)
	}
	sum := 0
	for range 200 {
		e := x.victim(&x.leaves, time.Now(), 0)
		sum += ranks[e.id]
		x.startRemoval(e)
		x.endRemoval(e, evicted)
	}
	require.Less(t, sum/200, n/10, "the mean rank of those that go, of %d", n)
}

// TestFullFileSystemGoesOnWithAStream: a store writes everything by streams, of which no byte comes twice. When the
// file system was full, they were refused, and nothing was evicted.
func TestFullFileSystemGoesOnWithAStream(t *testing.T) {
	for _, op := range []operation{opCreate, opWrite, opRename} {
		for nth := int64(1); nth <= 4; nth++ { // three blocks and the head
			if nth > 1 && op != opWrite {
				continue
			}
			t.Run(fmt.Sprint(op, " ", nth), func(t *testing.T) {
				dir := t.TempDir()
				f := &failer{once: true}
				l := ready(t, dir, Options{fail: f.fail})
				size := 2*blockBytes + 1000
				mustPut(t, l, "old", size)
				stream := func(name string) error {
					puts := []tier.Put{{Object: objectOf(name, size), From: bytes.NewReader(content(name, size))}}
					l.Put(t.Context(), puts)
					return puts[0].Err
				}
				f.arm(op, syscall.ENOSPC, nth)
				require.NoError(t, stream("new"))
				f.disarm()
				mustGet(t, l, "new", size)
				requireMiss(t, stat(l, "old"))
				require.EqualValues(t, 1, l.Usage().Evicted)

				f.once = false // it stays full: nothing is half there, and the next try has its own room
				f.arm(op, syscall.ENOSPC, nth)
				require.ErrorIs(t, stream("newer"), tier.ErrFull)
				f.disarm()
				requireMiss(t, stat(l, "newer"))
				_, temporary, _ := files(t, dir)
				require.Empty(t, temporary)
				require.NoError(t, stream("newer"))
				mustGet(t, l, "newer", size)
			})
		}
	}
}

// TestWriteBackOverAFullFileSystem: what a store writes in the background and through is there, in place of older
// objects.
func TestWriteBackOverAFullFileSystem(t *testing.T) {
	for _, policy := range []tier.Write{tier.Back, tier.Through} {
		dir := t.TempDir()
		var l *Level
		fail := func(op operation, _ string) error { // room for ten objects
			if op == opCreate && l != nil && l.Usage().Objects >= 10 {
				return syscall.ENOSPC
			}
			return nil
		}
		l = ready(t, dir, Options{Layout: noFolders{}, fail: fail})
		s, err := tier.Open(t.Context(), tier.Options{
			Memory: tiertest.NewMap(tiertest.MapOptions{Name: "memory"}),
			Lower:  []tier.Lower{{Level: l, Write: policy}},
		})
		require.NoError(t, err)
		defer s.Close()
		for i := range 30 {
			o := objectOf(fmt.Sprint(i), 1000)
			puts := []tier.Put{{Object: o, Bytes: content(o.Name, 1000)}}
			if i%2 == 1 {
				puts[0] = tier.Put{Object: o, From: bytes.NewReader(content(o.Name, 1000))}
			}
			s.Put(t.Context(), puts)
			require.NoError(t, puts[0].Err)
			_, err := s.Drain(t.Context())
			require.NoError(t, err)
			require.NoError(t, stat(l, o.Name), "object %d", i)
		}
		require.EqualValues(t, 20, l.Usage().Evicted)
	}
}
