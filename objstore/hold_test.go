package objstore

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/segment"
	"github.com/ringcache/ringcache/shmstore"
)

// realPool makes a pool in a segment in a folder of the test, and a reader with a
// slot.
func realPool(t *testing.T, o Options) (*writer, *Reader, Options) {
	t.Helper()
	o.TrustCounts = true
	o.Name, o.Dir, o.Readers = "pool", t.TempDir(), 1
	o.RingSize, o.MaxObjectSize = 16<<10, 16<<10
	o, err := o.resolve()
	require.NoError(t, err)
	w, err := pool.create(o)
	require.NoError(t, err)
	r, err := Open(o.Name, ReaderOptions{Dir: o.Dir, RingSize: o.RingSize, Readers: 1, SidecarLock: true, Generation: o.Generation})
	require.NoError(t, err)
	require.True(t, r.Protected())
	t.Cleanup(func() {
		require.NoError(t, r.Close())
		left, err := os.ReadDir(o.Dir)
		require.NoError(t, err)
		require.Empty(t, left)
	})
	return w, r, o
}

// unleased puts an object of n bytes b which nobody leases.
func unleased(t *testing.T, w *writer, key string, n int, b byte) serde.Address {
	t.Helper()
	r := begin(t, w, "of "+key)
	h, err := r.Put(key, image(n, b))
	require.NoError(t, err)
	r.Rollback()
	return h
}

func TestHeldObjectIsNotEvicted(t *testing.T) {
	w, r, _ := realPool(t, Options{})
	h := unleased(t, w, "a", 500, 7)
	v, err := r.Get("a", h)
	require.NoError(t, err)
	for i := range 50 {
		unleased(t, w, fmt.Sprint(i), 5000, 9)
	}
	require.NoError(t, v.Check())
	require.Equal(t, bytes.Repeat([]byte{7}, 500), v.Item().Elems[0].Data.(*serde.Tensor).Data)
	ok, err := w.Evict("a")
	require.NoError(t, err)
	require.False(t, ok)
	require.NoError(t, v.Release())
	ok, err = w.Evict("a")
	require.NoError(t, err)
	require.True(t, ok)
	_, err = r.Get("a", h)
	require.ErrorIs(t, err, ErrStale)
	require.NoError(t, w.Close())
}

// The writer takes the id away while it looks who holds the chunk.
func TestHeldViewIsNotStaleWhileTheWriterLooks(t *testing.T) {
	w, r, _ := realPool(t, Options{})
	h := unleased(t, w, "a", 500, 7)
	v, err := r.Get("a", h)
	require.NoError(t, err)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				if ok, err := w.Evict("a"); ok || err != nil {
					panic(fmt.Sprint(ok, err))
				}
			}
		}
	}()
	for range 20_000 {
		require.NoError(t, v.Check())
	}
	close(stop)
	<-done
	require.NoError(t, v.Release())
	require.NoError(t, w.Close())
}

// killedWhileEvicting leaves what a writer leaves that was killed between taking
// the id away and giving it back.
func killedWhileEvicting(t *testing.T, w *writer, h serde.Address) {
	t.Helper()
	mem.Store32(w.Segment().Ring()[h.Address:], shmring.DeadID)
	require.NoError(t, w.Detach())
}

func TestAdoptKeepsWhatALivingReaderHolds(t *testing.T) {
	w, r, o := realPool(t, Options{})
	h := unleased(t, w, "a", 500, 7)
	v, err := r.Get("a", h)
	require.NoError(t, err)
	killedWhileEvicting(t, w, h)

	w, a, err := adoptPool(o)
	require.NoError(t, err)
	require.Equal(t, 1, a.Kept)
	for i := range 50 {
		unleased(t, w, fmt.Sprint(i), 5000, 9)
	}
	require.NoError(t, v.Check())
	require.Equal(t, bytes.Repeat([]byte{7}, 500), v.Item().Elems[0].Data.(*serde.Tensor).Data)
	require.NoError(t, v.Release())
	require.NoError(t, w.CheckStructure())
	require.Zero(t, used(t, w))
	require.NoError(t, w.Close())
}

// Even if its bytes are not what they were.
func TestAdoptKeepsWhatIsHeldAndDamaged(t *testing.T) {
	w, r, o := realPool(t, Options{})
	h := unleased(t, w, "a", 500, 7)
	v, err := r.Get("a", h)
	require.NoError(t, err)
	v.Item().Elems[0].Data.(*serde.Tensor).Data[3]++
	require.NoError(t, w.Detach())

	w, a, err := adoptPool(o)
	require.NoError(t, err)
	require.Equal(t, 1, a.Kept)
	require.False(t, w.Cached("a"))
	for i := range 50 {
		unleased(t, w, fmt.Sprint(i), 5000, 9)
	}
	require.Equal(t, byte(8), v.Item().Elems[0].Data.(*serde.Tensor).Data[3])
	require.NoError(t, v.Release())
	require.Zero(t, used(t, w))
	require.NoError(t, w.Close())
}

func TestAdoptDropsWhatIsDamaged(t *testing.T) {
	for name, damage := range map[string]func(w *writer, h serde.Address){
		"data":   func(w *writer, h serde.Address) { w.Segment().Ring()[h.Address+600]++ },
		"header": func(w *writer, h serde.Address) { w.Segment().Ring()[h.Address+4]++ },
		"id":     func(w *writer, h serde.Address) { w.Segment().Ring()[h.Address]++ },
		"note":   func(w *writer, h serde.Address) { w.Segment().Ring()[h.Address+70]++ },
	} {
		t.Run(name, func(t *testing.T) {
			w, r, o := realPool(t, Options{})
			h := unleased(t, w, "a", 1000, 7)
			hb := unleased(t, w, "b", 1000, 8)
			damage(w, h)
			require.NoError(t, w.Detach())
			w, a, err := adoptPool(o)
			require.NoError(t, err)
			require.Equal(t, shmstore.Adoption{Kept: 1, Dropped: 1, Clean: true, Epoch: 2}, a)
			require.False(t, w.Cached("a"))
			_, err = r.Get("a", h)
			require.ErrorIs(t, err, ErrStale)
			v, err := r.Get("b", hb)
			require.NoError(t, err)
			require.NoError(t, v.Release())
			next := unleased(t, w, "a", 1000, 7)
			require.Greater(t, next.ID, hb.ID)
			require.NoError(t, w.CheckStructure())
			require.NoError(t, w.Close())
		})
	}
}

func TestAdoptErrors(t *testing.T) {
	w, _, o := realPool(t, Options{})
	_, _, err := adoptPool(o)
	require.ErrorIs(t, err, segment.ErrOwned)
	require.ErrorContains(t, err, fmt.Sprint(os.Getpid()))
	require.NoError(t, w.Detach())

	for name, change := range map[string]func(*Options){
		"no such name":  func(o *Options) { o.Name = "other" },
		"another size":  func(o *Options) { o.RingSize += 64 },
		"another wire":  func(o *Options) { o.Generation = generation(t, "0.31.0"); o.RingSize += 32 },
		"no readers":    func(o *Options) { o.Readers = 0 },
		"older version": func(o *Options) { o.Generation = generation(t, "0.31.0") },
	} {
		bad := o
		change(&bad)
		_, _, err := adoptPool(bad)
		require.Error(t, err, name)
	}
	same := o
	same.Generation = generation(t, "0.32.0") // speaks the same wire as the newest
	w, _, err = adoptPool(same)
	require.NoError(t, err)
	require.NoError(t, w.Close())

	other := o
	other.Name = "fifo"
	w, err = fifo.create(other)
	require.NoError(t, err)
	require.NoError(t, w.Detach())
	_, _, err = adoptPool(other)
	require.ErrorIs(t, err, errInvalid)
	require.ErrorContains(t, err, "Sweep")
	_, err = segment.Sweep(segment.SweepOptions{Dir: o.Dir, Prefix: "fifo", Remove: true})
	require.NoError(t, err)
}

// A segment that vLLM made has no sidecar, or one of an older segment.
func TestReaderOfAForeignSegmentIsNotProtected(t *testing.T) {
	dir := t.TempDir()
	so := segment.Options{Name: "s", Dir: dir, RingSize: 1000, DataOffset: 32}
	seg, err := segment.Create(so)
	require.NoError(t, err)
	open := func() {
		r, err := Open("s", ReaderOptions{Dir: dir, RingSize: 1000, Readers: 1})
		require.NoError(t, err)
		require.False(t, r.Protected())
		require.NoError(t, r.Close())
		_, err = Open("s", ReaderOptions{Dir: dir, RingSize: 1000, Readers: 1, SidecarLock: true})
		require.ErrorIs(t, err, segment.ErrForeign)
	}
	open()
	require.NoError(t, seg.Destroy())

	w, err := pool.create(Options{Name: "s", Dir: dir, RingSize: 1000, MaxObjectSize: 500, Readers: 1})
	require.NoError(t, err)
	require.NoError(t, os.Remove(dir+"/s"))
	seg, err = segment.Create(so) // by something else
	require.NoError(t, err)
	open()
	require.NoError(t, seg.Destroy())
	require.NoError(t, w.Close())
}
