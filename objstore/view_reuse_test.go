package objstore

import (
	"bytes"
	"fmt"
	"io/fs"
	"log/slog"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/serde"
)

// nested is an item whose lists contain tensors, and others.
func nested() *serde.Item {
	return &serde.Item{Modality: "image", Elems: []serde.Elem{
		{Key: "x", Data: []any{int64(1), []any{tensor(300, 1), []any{}, tensor(400, 2)}, []any{true}}},
		{Key: "empty", Data: tensor(0, 0)}, {Key: "number", Data: 2.5}, {Key: "none"},
	}}
}

// TestReusedViewShowsWhatAFreshOneShows: values of every kind one after the other, so that each uses the memory of
// others that were larger and smaller, read for the first time and again.
func TestReusedViewShowsWhatAFreshOneShows(t *testing.T) {
	for _, version := range []string{"0.11.0", "0.33.0"} {
		t.Run(version, func(t *testing.T) {
			s := newStore(t, Options{RingSize: 64 << 10, Readers: 1, Generation: generation(t, version)})
			r := s.readers[0]
			values := []serde.Value{nested(), tensor(600, 1), image(600, 2), pickled([]byte("pickled")), nested(), image(100, 3), image(600, 4), qwen(4704)}
			for _, v := range values {
				if it, ok := v.(*serde.Item); ok {
					it.Modality = "image"
				}
			}
			var handles []serde.Address
			for i, v := range values {
				h, err := s.Put(fmt.Sprint(i), v)
				require.NoError(t, err)
				handles = append(handles, h)
			}
			var reused View
			for range 3 {
				for i, h := range handles {
					fresh, err := r.Get(fmt.Sprint(i), h)
					require.NoError(t, err)
					want, err := fresh.Clone()
					require.NoError(t, err)
					require.NoError(t, fresh.Release())
					require.NoError(t, r.GetInto(&reused, fmt.Sprint(i), h))
					require.Equal(t, want, reused.Value(), "%d", i)
					bytesOfSegment(t, s.mem, reused.Value())
					require.NoError(t, reused.Check())
					require.NoError(t, reused.Release())
				}
			}
		})
	}
}

// bytesOfSegment requires that tensors are slices of the segment, not copies.
func bytesOfSegment(t *testing.T, m []byte, v serde.Value) {
	t.Helper()
	it, ok := v.(*serde.Item)
	if !ok {
		return
	}
	for _, e := range it.Elems {
		if x, ok := e.Data.(*serde.Tensor); ok && len(x.Data) > 0 {
			old := x.Data[0]
			at := bytes.Index(m, x.Data)
			require.GreaterOrEqual(t, at, 0)
			x.Data[0]++
			require.NotEqual(t, -1, bytes.Index(m, x.Data))
			x.Data[0] = old
		}
	}
}

// TestMisuseOfAView gives errors, and the view that is open goes on.
func TestMisuseOfAView(t *testing.T) {
	s := newStore(t, Options{RingSize: 8000, MaxObjectSize: 2000, Readers: 1})
	a, err := s.Put("a", image(600, 1))
	require.NoError(t, err)
	b, err := s.Put("b", image(600, 2))
	require.NoError(t, err)
	r := s.readers[0]

	var v View
	require.Nil(t, v.Value())
	require.Nil(t, v.Item())
	require.NoError(t, v.Release())
	require.ErrorIs(t, v.Check(), fs.ErrClosed)
	_, err = v.Clone()
	require.ErrorIs(t, err, fs.ErrClosed)

	require.NoError(t, r.GetInto(&v, "a", a))
	kept := v.Item()
	require.ErrorIs(t, r.GetInto(&v, "b", b), fs.ErrInvalid)
	require.Equal(t, views{open: 1}, viewsOf(r))
	require.Equal(t, bytes.Repeat([]byte{1}, 600), v.Item().Elems[0].Data.(*serde.Tensor).Data)
	require.NoError(t, v.Release())
	require.NoError(t, v.Release())
	require.Empty(t, kept.Elems, "nothing leads to the segment any more")
	require.Nil(t, v.Value())
	require.ErrorIs(t, v.Check(), fs.ErrClosed)

	// An error leaves a view that shows nothing and can be used again.
	wrong := a
	wrong.Signature[5]++
	require.ErrorIs(t, r.GetInto(&v, "a", wrong), ErrBadSignature)
	require.Nil(t, v.Value())
	require.ErrorIs(t, v.Check(), fs.ErrClosed)
	require.NoError(t, v.Release())
	require.Equal(t, views{}, viewsOf(r))
	require.NoError(t, r.GetInto(&v, "b", b))
	require.Equal(t, bytes.Repeat([]byte{2}, 600), v.Item().Elems[0].Data.(*serde.Tensor).Data)
	require.NoError(t, v.Release())
	s.readAll(t, a, "a")
}

// TestDroppedReusedViewIsFound: also in its later uses, when it shows more tensors than before, and while only a
// tensor of it is kept.
func TestDroppedReusedViewIsFound(t *testing.T) {
	s := newStore(t, Options{RingSize: 8000, MaxObjectSize: 2000, Readers: 1})
	r := s.readers[0]
	small, err := s.Put("small", image(600, 1))
	require.NoError(t, err)
	large, err := s.Put("large", nested())
	require.NoError(t, err)
	var text bytes.Buffer // read after Close, which is after the last line
	r.log = slog.New(slog.NewTextHandler(&text, nil))

	released := new(View)
	require.NoError(t, r.GetInto(released, "small", small))
	require.NoError(t, released.Release())
	released = nil

	_, file, line, _ := runtime.Caller(0)
	dropped := func() *serde.Tensor {
		var v View
		for _, h := range []struct {
			key string
			serde.Address
		}{{"small", small}, {"large", large}, {"small", small}} {
			require.NoError(t, v.Release())
			require.NoError(t, r.GetInto(&v, h.key, h.Address))
			runtime.GC()
			require.Equal(t, views{open: 1}, viewsOf(r))
		}
		return v.Item().Elems[0].Data.(*serde.Tensor)
	}()
	for range 3 {
		runtime.GC()
		require.Equal(t, views{open: 1}, viewsOf(r), "a tensor is kept")
	}
	runtime.KeepAlive(dropped)
	collectUntil(t, "the mapping", func() bool { return r.Close() == nil })
	require.Equal(t, views{dropped: 1}, viewsOf(r), "the other was released")
	require.Equal(t, 1, bytes.Count(text.Bytes(), []byte("\n")), text.String())
	require.Contains(t, text.String(), fmt.Sprintf("%s:%d", file, line+8))
}

// TestReusedViewsOfManyGoroutines: each has a view, and all use one reader's memory while the writer replaces
// objects.
func TestReusedViewsOfManyGoroutines(t *testing.T) {
	w, r, _ := realPool(t, Options{})
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			var v View
			for i := range 300 {
				key := fmt.Sprint(g, "/", i%40)
				req, err := w.Begin(key)
				if err != nil {
					panic(err)
				}
				h, err := req.Lookup(key)
				if err != nil {
					h, err = req.Put(key, image(100+i%40, byte(g)), PutOptions{})
				}
				if err != nil {
					panic(err)
				}
				if err := r.GetInto(&v, key, h); err != nil {
					panic(err)
				}
				if d := v.Item().Elems[0].Data.(*serde.Tensor).Data; len(d) != 100+i%40 || d[0] != byte(g) || v.Check() != nil {
					panic(fmt.Sprint(len(d), d[0]))
				}
				if err := v.Release(); err != nil {
					panic(err)
				}
				req.Rollback()
			}
		})
	}
	all.Wait()
	require.Equal(t, views{}, viewsOf(r))
	require.NoError(t, r.Close())
	require.NoError(t, w.CheckStructure())
	require.NoError(t, w.Close())
}

// TestSeenObjectsAreReadWithoutAllocations.
func TestSeenObjectsAreReadWithoutAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, k := range kinds {
		t.Run(string(k), func(t *testing.T) {
			s := newStoreOf(t, k, Options{RingSize: 64 << 10, Readers: 1})
			req := begin(t, s, "r")
			h, err := req.Put("a", qwen(4704))
			require.NoError(t, err)
			var v View
			look := func() {
				if err := s.readers[0].GetInto(&v, "a", h); err != nil {
					t.Fatal(err)
				}
				if err := v.Release(); err != nil {
					t.Fatal(err)
				}
			}
			look()
			require.Zero(t, testing.AllocsPerRun(100, look))
			req.Rollback()
		})
	}
}
