package objstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/serde"
)

// collectUntil runs the garbage collector until it has found what done waits for.
func collectUntil(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !done(); runtime.Gosched() {
		if time.Now().After(deadline) {
			require.FailNow(t, "not recovered", what)
		}
		runtime.GC()
	}
}

// TestDroppedViewsDoNotDisableAReader: a slot has 508 places, and each view that was
// forgotten took one for good.
func TestDroppedViewsDoNotDisableAReader(t *testing.T) {
	w, r, _ := realPool(t, Options{})
	h := unleased(t, w, "a", 500, 7)
	for i := range 600 {
		collectUntil(t, "a place in the slot", func() bool {
			_, err := r.Get("a", h)
			if err != nil {
				require.ErrorIs(t, err, ErrBusy, "view %d", i)
			}
			return err == nil
		})
	}
	collectUntil(t, "all views", func() bool {
		ok, err := w.Evict("a")
		require.NoError(t, err)
		return ok
	})
	collectUntil(t, "the mapping", func() bool {
		err := r.Close()
		require.True(t, err == nil || errors.Is(err, ErrBusy), "%v", err)
		return err == nil
	})
	require.NoError(t, w.CheckStructure())
	require.NoError(t, w.Close())
}

// TestDroppedViewCountsItsRead: else its chunk, and with FIFO all behind it, would
// never be free.
func TestDroppedViewCountsItsRead(t *testing.T) {
	s := newStore(t, Options{RingSize: 1000, MaxObjectSize: 900, Readers: 1})
	h, err := s.Put("a", image(600, 1))
	require.NoError(t, err)
	_, err = s.readers[0].Get("a", h)
	require.NoError(t, err)
	collectUntil(t, "the read", func() bool {
		_, err := s.Put("b", image(600, 2))
		if err != nil {
			require.ErrorIs(t, err, ErrFull)
		}
		return err == nil
	})
	collectUntil(t, "the mapping", func() bool { return s.readers[0].Close() == nil })
}

// TestDroppedViewIsReportedWithItsPlace: where it was got is what its program needs
// to know.
func TestDroppedViewIsReportedWithItsPlace(t *testing.T) {
	s := newStore(t, Options{RingSize: 1000, MaxObjectSize: 900, Readers: 1})
	h, err := s.Put("a", image(600, 1))
	require.NoError(t, err)
	r := s.readers[0]
	var text bytes.Buffer // read after Close, which is after the last line
	r.log = slog.New(slog.NewTextHandler(&text, nil))

	_, file, line, _ := runtime.Caller(0)
	_, err = r.Get("a", h)
	require.NoError(t, err)
	released, err := r.Get("a", h)
	require.NoError(t, err)
	require.NoError(t, released.Release())
	collectUntil(t, "the mapping", func() bool { return r.Close() == nil })
	require.Equal(t, views{dropped: 1}, viewsOf(r), "the other was released")
	require.Equal(t, 1, bytes.Count(text.Bytes(), []byte("\n")), text.String())
	require.Contains(t, text.String(), fmt.Sprintf("%s:%d", file, line+1))
	require.Contains(t, text.String(), fmt.Sprintf("address=%d id=%d", h.Address, h.ID))
}

// views are the results of Reader.Views.
type views struct {
	open    int
	dropped uint64
}

func viewsOf(r *Reader) (v views) {
	v.open, v.dropped = r.Views()
	return v
}

// onRecord calls a function for each line of a log.
type onRecord struct {
	slog.Handler
	f func()
}

func (h onRecord) Handle(context.Context, slog.Record) error {
	h.f()
	return nil
}

// TestReaderWithoutOpenViewsCanBeClosed: a dropped view was not counted as open any
// more while it still held the segment, so who waited for its end found Close busy.
func TestReaderWithoutOpenViewsCanBeClosed(t *testing.T) {
	s := newStore(t, Options{RingSize: 1000, MaxObjectSize: 900, Readers: 1})
	h, err := s.Put("a", image(600, 1))
	require.NoError(t, err)
	r := s.readers[0]
	reported := make(chan error, 1)
	r.log = slog.New(onRecord{slog.NewTextHandler(io.Discard, nil), func() {
		open, err := viewsOf(r).open, r.Close()
		if err != nil && open == 0 {
			reported <- err
		}
		close(reported)
	}})
	_, err = r.Get("a", h)
	require.NoError(t, err)
	collectUntil(t, "the view", func() bool { return viewsOf(r) == views{dropped: 1} })
	require.NoError(t, <-reported, "no view was open while the report was made")
	require.NoError(t, r.Close())
}

// TestViewIsKeptByItsTensors: who keeps a tensor goes on reading the segment, so its
// chunk must not be free, although nothing leads to the View any more.
func TestViewIsKeptByItsTensors(t *testing.T) {
	s := newStore(t, Options{RingSize: 4000, MaxObjectSize: 900, Readers: 1})
	r := s.readers[0]
	deep := &serde.Item{Elems: []serde.Elem{{Key: "x", Data: []any{int64(1), []any{tensor(300, 1), tensor(400, 2)}}}}}
	for name, value := range map[string]serde.Value{"item": image(600, 1), "tensor": tensor(600, 1), "list": deep} {
		h, err := s.Put(name, value)
		require.NoError(t, err)
		got := func() serde.Value {
			v, err := r.Get(name, h)
			require.NoError(t, err)
			if it := v.Item(); it != nil && name == "list" {
				return it.Elems[0].Data.([]any)[1].([]any)[1].(*serde.Tensor)
			}
			return v.Value()
		}()
		// What else was dropped then is found, so this was looked at too.
		before := viewsOf(r).dropped
		for range 3 {
			_, err = r.Get(name, h)
			require.NoError(t, err)
			before++
			collectUntil(t, "the witness", func() bool { return viewsOf(r) == views{open: 1, dropped: before} })
		}
		runtime.KeepAlive(got)
		collectUntil(t, name, func() bool { return viewsOf(r) == views{dropped: before + 1} })
	}
}

// TestDroppedViewOfAWriter: it keeps a lease.
func TestDroppedViewOfAWriter(t *testing.T) {
	s := newStoreOf(t, pool, Options{RingSize: 8000, MaxObjectSize: 900, Readers: 1})
	r := putHeld(t, s, "a", 300)
	h, err := r.Lookup("a")
	require.NoError(t, err)
	_, err = s.Get(h)
	require.NoError(t, err)
	r.Rollback()
	require.NoError(t, s.CheckStructure())
	collectUntil(t, "the mapping", func() bool { return s.Close() == nil })
}

// TestViewsAreReleasedOrDroppedOnce: goroutines that get, use, release and drop, with
// the collector beside them. Each view counts once, and none is left.
func TestViewsAreReleasedOrDroppedOnce(t *testing.T) {
	w, r, _ := realPool(t, Options{})
	h := unleased(t, w, "a", 500, 7)
	held := begin(t, w, "held")
	_, _, err := held.Keep("a")
	require.NoError(t, err)
	const goroutines, rounds = 4, 400
	var drops sync.Map
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			dropped := 0
			for range rounds {
				v, err := r.Get("a", h)
				if errors.Is(err, ErrBusy) {
					continue
				}
				if err != nil {
					panic(err)
				}
				switch rand.IntN(4) {
				case 0:
					dropped++
				case 1:
					_ = v.Release()
					fallthrough
				default:
					if err := v.Release(); err != nil {
						panic(err)
					}
				}
				if rand.IntN(50) == 0 {
					runtime.GC()
				}
			}
			drops.Store(g, dropped)
		})
	}
	all.Wait()
	want := uint64(0)
	drops.Range(func(_, n any) bool { want += uint64(n.(int)); return true })
	collectUntil(t, "every view", func() bool { return viewsOf(r) == views{dropped: want} })
	ids, _ := sidecar.Of(w.Segment()).Held()
	require.Empty(t, ids)
	held.Rollback()
	require.NoError(t, r.Close())
	require.NoError(t, w.CheckStructure())
	require.NoError(t, w.Close())
}

// TestReaderOfMetadataWithMoreFramesThanItsDocumentCanName: a chunk full of lengths
// of 0 costs a reader a small multiple of its own size.
func TestReaderOfMetadataWithMoreFramesThanItsDocumentCanName(t *testing.T) {
	const size = 8 << 20
	s := newStore(t, Options{RingSize: size, MaxObjectSize: size, Readers: 1})
	h, err := s.Put("a", tensor(size-4096, 1))
	require.NoError(t, err)
	chunk := s.Segment().Ring()[h.Address:]
	before := bytes.Clone(chunk)
	lens := make([]int64, 3<<20)
	lens[0] = size * 2 / 3
	copy(chunk[8+countSize:], serde.AppendMetadata(nil, serde.Metadata{Type: "MultiModalKwargsItem", NBytes: lens[0], Lens: lens}))
	var a, b runtime.MemStats
	runtime.ReadMemStats(&a)
	_, err = s.readers[0].Get("a", h)
	runtime.ReadMemStats(&b)
	require.ErrorIs(t, err, ErrCorrupt)
	require.Less(t, b.TotalAlloc-a.TotalAlloc, uint64(5*size))
	copy(chunk, before)
	s.readAll(t, h, "a")
}
