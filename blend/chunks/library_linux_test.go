package chunks_test

import (
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ringcache/ringcache/blend"
	"github.com/ringcache/ringcache/blend/chunks"
	"github.com/ringcache/ringcache/blend/rope"
	"github.com/ringcache/ringcache/fuzz/tiertest"
	"github.com/ringcache/ringcache/kv"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/disk"
	"github.com/ringcache/ringcache/tier/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	window = 16
	space  = "kv.model.blend"
)

var shape = blend.Shape{Layers: 4, Heads: 2, HeadDim: 32, DType: rope.BF16}

// levels are a store of memory and a disk.
type levels struct {
	memory *memory.Level
	disk   *disk.Level
	store  *tier.Store
}

func openLevels(t *testing.T, folder string, size int64) *levels {
	t.Helper()
	l, _ := openFaulty(t, folder, size)
	return l
}

// openFaulty is openLevels with a disk that fails as it is told.
func openFaulty(t *testing.T, folder string, size int64) (*levels, *tiertest.Fault) {
	t.Helper()
	m, err := memory.Open(memory.Options{Name: "blend", Dir: t.TempDir(), Size: size})
	require.NoError(t, err)
	d, err := disk.Open(folder, disk.Options{Capacity: 1 << 28})
	require.NoError(t, err)
	require.NoError(t, d.WaitIndex(t.Context()))
	fault := tiertest.NewFault(d)
	s, err := tier.Open(t.Context(), tier.Options{Memory: m, Lower: []tier.Lower{{Level: fault, Write: tier.Through}}})
	require.NoError(t, err)
	l := &levels{m, d, s}
	t.Cleanup(l.close(t))
	return l, fault
}

func (l *levels) close(t *testing.T) func() {
	return func() {
		require.NoError(t, l.memory.CheckStructure())
		require.Empty(t, l.store.Leases(), "nothing is pinned at the end")
		require.NoError(t, l.store.Close())
		require.NoError(t, l.disk.Close())
		require.NoError(t, l.memory.Remove())
	}
}

func library(t *testing.T, l *levels) *chunks.Library {
	t.Helper()
	lib, err := chunks.Open(t.Context(), chunks.Options{
		Store: l.store, Space: space, Shape: shape, Scheme: kv.Scheme{ChunkTokens: window},
	})
	require.NoError(t, err)
	return lib
}

// document is tokens and the KV of their chunks.
type document struct {
	tokens []int64
	chunks []blend.Chunk
}

func draw(t *testing.T, r *rand.Rand, n int) document {
	t.Helper()
	var d document
	for range n {
		d.tokens = append(d.tokens, r.Int64N(1<<17))
	}
	for range n / window {
		d.chunks = append(d.chunks, drawChunk(t, r, window))
	}
	return d
}

func drawChunk(t *testing.T, r *rand.Rand, tokens int) blend.Chunk {
	t.Helper()
	kv, err := blend.New(shape, tokens)
	require.NoError(t, err)
	x := make([]float32, len(kv.Bytes)/2)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	rope.BF16.Encode(kv.Bytes, x)
	return blend.Chunk{KV: kv, Position: r.IntN(100)}
}

// TestFiftyDocumentsInRandomOrder stores documents, of which memory holds a part, and blends prompts of 50 of
// them.
func TestFiftyDocumentsInRandomOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(50, 50))
	folder := filepath.Join(t.TempDir(), "disk")
	l := openLevels(t, folder, 4<<20)
	lib := library(t, l)
	all := make([]document, 150) // 300 chunks of 16 KiB
	for i := range all {
		all[i] = draw(t, r, 2*window+r.IntN(window))
		for j, c := range all[i].chunks {
			require.NoError(t, lib.Put(t.Context(), all[i].tokens[j*window:(j+1)*window], c))
		}
	}
	require.Equal(t, 300, lib.Len())
	require.Less(t, l.memory.Usage().Objects, int64(300), "some are on the disk alone")

	// What a library knows it learns from the levels again.
	lib = library(t, l)
	require.Equal(t, 300, lib.Len())
	table, err := rope.New(rope.Config{HeadDim: shape.HeadDim})
	require.NoError(t, err)
	for round := range 3 {
		var prompt []int64
		order := r.Perm(len(all))[:50]
		for _, i := range order {
			prompt = append(prompt, all[i].tokens...)
		}
		cover, err := lib.Find(prompt)
		require.NoError(t, err)
		require.Len(t, cover, 100)
		request, err := lib.Begin(t.Context(), "request", cover)
		require.NoError(t, err)
		require.Equal(t, cover, request.Cover)
		require.Len(t, l.store.Leases(), 1)
		require.Equal(t, 100*shape.Bytes(window), request.Bytes())
		kv, err := blend.New(shape, len(prompt))
		require.NoError(t, err)
		moves, err := request.Moves(table, kv)
		require.NoError(t, err)
		require.NoError(t, blend.MoveAll(moves, 0))
		request.Release()
		request.Release()
		require.Empty(t, l.store.Leases(), "nothing is pinned at the end")
		require.Zero(t, l.memory.Usage().Held)

		at, gaps := 0, 0
		for _, i := range order {
			for j, c := range all[i].chunks {
				for layer := range shape.Layers {
					from, to := (at+j*window)*shape.Row(), (at+(j+1)*window)*shape.Row()
					require.Equal(t, c.Values(layer), kv.Values(layer)[from:to])
					keys := make([]byte, to-from)
					require.NoError(t, table.Shift(at+j*window-c.Position).Apply(keys, c.Keys(layer), shape.DType))
					require.Equal(t, keys, kv.Keys(layer)[from:to])
				}
			}
			at += len(all[i].tokens)
			gaps += len(all[i].tokens) - 2*window
		}
		left := 0
		for _, g := range blend.Gaps(cover, len(prompt)) {
			left += g.End - g.Start
		}
		require.Equal(t, gaps, left)
		t.Logf("round %d: %d tokens, %d chunks found, %d bytes moved, %d tokens in gaps, "+
			"%d of 300 chunks in memory, 0 pinned",
			round, len(prompt), len(cover), request.Bytes(), left, l.memory.Usage().Objects)
	}
}

// TestWhatWentIsAGap: a chunk that was deleted is not in the cover, and forgotten.
func TestWhatWentIsAGap(t *testing.T) {
	l := openLevels(t, filepath.Join(t.TempDir(), "disk"), 4<<20)
	lib := library(t, l)
	d := draw(t, rand.New(rand.NewPCG(1, 1)), 3*window)
	d.chunks[1].Unrotated, d.chunks[1].Position = true, 0
	for j, c := range d.chunks {
		require.NoError(t, lib.Put(t.Context(), d.tokens[j*window:(j+1)*window], c))
	}
	cover, err := lib.Find(d.tokens)
	require.NoError(t, err)
	require.Len(t, cover, 3)
	require.NoError(t, l.store.Delete(t.Context(), []tier.Key{{Space: space, Name: cover[0].Name}})[0])
	request, err := lib.Begin(t.Context(), "request", cover)
	require.NoError(t, err)
	require.Equal(t, cover[1:], request.Cover)
	require.Equal(t, 2, lib.Len())
	table, err := rope.New(rope.Config{HeadDim: shape.HeadDim})
	require.NoError(t, err)
	dst, err := blend.New(shape, len(d.tokens))
	require.NoError(t, err)
	moves, err := request.Moves(table, dst)
	require.NoError(t, err)
	require.NoError(t, blend.MoveAll(moves, 0))
	want := make([]byte, shape.Row())
	require.NoError(t, table.At(window+3).Apply(want, d.chunks[1].Keys(2)[3*shape.Row():4*shape.Row()], shape.DType))
	require.Equal(t, want, dst.Keys(2)[(window+3)*shape.Row():(window+4)*shape.Row()],
		"it was stored without a position")
	small, err := blend.New(shape, 3)
	require.NoError(t, err)
	_, err = request.Moves(table, small)
	require.ErrorIs(t, err, fs.ErrInvalid)
	request.Release()
	require.Empty(t, l.store.Leases())
}

func TestWhatIsNoChunk(t *testing.T) {
	l := openLevels(t, filepath.Join(t.TempDir(), "disk"), 4<<20)
	put := []tier.Put{{
		Object: tier.Object{Key: tier.Key{Space: space, Name: "other"}, Size: 3, Note: []byte("{}")},
		Bytes:  []byte("abc"),
	}}
	l.store.Put(t.Context(), put)
	require.NoError(t, put[0].Err)
	lib := library(t, l)
	require.Zero(t, lib.Len(), "another program's object is none")
	d := draw(t, rand.New(rand.NewPCG(1, 1)), window)
	require.ErrorIs(t, lib.Put(t.Context(), d.tokens[1:], d.chunks[0]), fs.ErrInvalid)
	_, err := chunks.Open(t.Context(), chunks.Options{Shape: shape, Space: space})
	require.ErrorIs(t, err, fs.ErrInvalid)
	for _, note := range []string{
		``, `{}`, `{"blend":2}`, `{"blend":1,"fingerprint":"x"}`, `{"blend":1,"fingerprint":"1","dtype":"int8"}`,
		// 16 bytes
		`{"blend":1,"tokens":1,"fingerprint":"1","position":0,"layers":1,"heads":1,"head_dim":2,"dtype":"float32"}`,
		// a negative position
		`{"blend":1,"tokens":1,"fingerprint":"1","position":-1,"layers":1,"heads":1,"head_dim":1,"dtype":"float16"}`,
		// no dtype
		`{"blend":1,"tokens":1,"fingerprint":"1","position":0,"layers":1,"heads":1,"head_dim":1}`,
		// no layers
		`{"blend":1,"tokens":1,"fingerprint":"1","position":0,"layers":0,"heads":1,"head_dim":1,"dtype":"float16"}`,
	} {
		_, err := chunks.ReadNote(tier.Object{Size: 4, Note: []byte(note)})
		require.ErrorIs(t, err, fs.ErrInvalid, note)
	}
	text := `{"blend":1,"tokens":1,"fingerprint":"f0","position":3,"layers":1,"heads":1,"head_dim":1,"dtype":"float16"}`
	n, err := chunks.ReadNote(tier.Object{Size: 4, Note: []byte(text)})
	require.NoError(t, err)
	require.Equal(t, chunks.Note{
		Shape: blend.Shape{Layers: 1, Heads: 1, HeadDim: 1, DType: rope.F16}, Tokens: 1, Fingerprint: 0xf0, Position: 3,
	}, n)
}

// stored is a library with a document, whose chunks are in memory and on the disk.
func stored(t *testing.T, l *levels, chunks int) (*chunks.Library, document) {
	t.Helper()
	lib := library(t, l)
	d := draw(t, rand.New(rand.NewPCG(1, 1)), chunks*window)
	for j, c := range d.chunks {
		require.NoError(t, lib.Put(t.Context(), d.tokens[j*window:(j+1)*window], c))
	}
	return lib, d
}

// TestRequestsOfTheSameNameKeepTheirOwnPins: they had one lease, and the end of one let the chunks of the
// other be evicted.
func TestRequestsOfTheSameNameKeepTheirOwnPins(t *testing.T) {
	l := openLevels(t, filepath.Join(t.TempDir(), "disk"), 4<<20)
	lib, d := stored(t, l, 2)
	cover, err := lib.Find(d.tokens)
	require.NoError(t, err)
	first, err := lib.Begin(t.Context(), "request", cover)
	require.NoError(t, err)
	second, err := lib.Begin(t.Context(), "request", cover)
	require.NoError(t, err)
	first.Release()
	require.Len(t, l.store.Leases(), 1)
	errs := l.memory.Delete(t.Context(), []tier.Key{{Space: space, Name: cover[0].Name}})
	require.ErrorIs(t, errs[0], tier.ErrInUse, "the second request has it")
	second.Release()
}

// TestChunksOfALevelThatIsAwayAreNotForgotten: they are gaps of this request, and found again when it is
// back.
func TestChunksOfALevelThatIsAwayAreNotForgotten(t *testing.T) {
	l, fault := openFaulty(t, filepath.Join(t.TempDir(), "disk"), 4<<20)
	lib, d := stored(t, l, 2)
	cover, err := lib.Find(d.tokens)
	require.NoError(t, err)
	require.NoError(t, l.memory.Delete(t.Context(), []tier.Key{{Space: space, Name: cover[0].Name}})[0])
	fault.Fail(tier.ErrUnavailable)
	request, err := lib.Begin(t.Context(), "request", cover)
	require.NoError(t, err)
	require.Equal(t, cover[1:], request.Cover)
	request.Release()
	require.Equal(t, 2, lib.Len())
	fault.Fail(nil)
	require.Eventually(t, func() bool {
		request, err := lib.Begin(t.Context(), "request", cover)
		require.NoError(t, err)
		defer request.Release()
		return len(request.Cover) == 2
	}, time.Minute, time.Millisecond)
}

// TestMemoryThatIsTooSmallLeavesGaps: a request pins what has room, and does not wait for the rest.
func TestMemoryThatIsTooSmallLeavesGaps(t *testing.T) {
	l := openLevels(t, filepath.Join(t.TempDir(), "disk"), 1<<20)
	lib, d := stored(t, l, 100) // 1.6 MB
	cover, err := lib.Find(d.tokens)
	require.NoError(t, err)
	require.Len(t, cover, 100)
	request, err := lib.Begin(t.Context(), "request", cover)
	require.NoError(t, err)
	require.Greater(t, len(request.Cover), 20)
	require.Less(t, len(request.Cover), 100)
	require.Equal(t, 100, lib.Len(), "what had no room is still known")
	table, err := rope.New(rope.Config{HeadDim: shape.HeadDim})
	require.NoError(t, err)
	dst, err := blend.New(shape, len(d.tokens))
	require.NoError(t, err)
	moves, err := request.Moves(table, dst)
	require.NoError(t, err)
	require.NoError(t, blend.MoveAll(moves, 0))
	for _, m := range request.Cover {
		row := shape.Row()
		require.Equal(t, d.chunks[m.Start/window].Values(1), dst.Values(1)[m.Start*row:m.End*row])
	}
	request.Release()
	require.Empty(t, l.store.Leases())
}

// TestAChunkTwiceInAPrompt: a document may be there more than once.
func TestAChunkTwiceInAPrompt(t *testing.T) {
	l := openLevels(t, filepath.Join(t.TempDir(), "disk"), 4<<20)
	lib, d := stored(t, l, 1)
	prompt := slices.Concat(d.tokens, []int64{7}, d.tokens)
	cover, err := lib.Find(prompt)
	require.NoError(t, err)
	require.Len(t, cover, 2)
	request, err := lib.Begin(t.Context(), "request", cover)
	require.NoError(t, err)
	require.Equal(t, cover, request.Cover)
	require.Equal(t, 2*shape.Bytes(window), request.Bytes())
	request.Release()
	require.NoError(t, lib.Put(t.Context(), d.tokens, d.chunks[0]), "again")
	require.Equal(t, 1, lib.Len())

	none, err := lib.Begin(t.Context(), "nothing", nil)
	require.NoError(t, err)
	require.Empty(t, none.Cover)
	none.Release()
}

// TestNothingIsPinnedBehindACancelledBegin, while a level below hangs.
func TestNothingIsPinnedBehindACancelledBegin(t *testing.T) {
	l, fault := openFaulty(t, filepath.Join(t.TempDir(), "disk"), 4<<20)
	lib, d := stored(t, l, 2)
	cover, err := lib.Find(d.tokens)
	require.NoError(t, err)
	key := tier.Key{Space: space, Name: cover[0].Name}
	require.NoError(t, l.memory.Delete(t.Context(), []tier.Key{key})[0])
	ctx, cancel := context.WithCancel(t.Context())
	fault.Do(func(tiertest.Call) tiertest.Answer {
		cancel()
		return tiertest.Answer{Hang: true}
	})
	_, err = lib.Begin(ctx, "request", cover)
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, l.store.Leases())
	require.Equal(t, 2, lib.Len())
	fault.Do(nil)
}

// TestWhatSomebodyStoresIsAGap: it may take as long as that one likes.
func TestWhatSomebodyStoresIsAGap(t *testing.T) {
	l := openLevels(t, filepath.Join(t.TempDir(), "disk"), 4<<20)
	lib, d := stored(t, l, 1)
	cover, err := lib.Find(d.tokens)
	require.NoError(t, err)
	key := tier.Key{Space: space, Name: cover[0].Name}
	require.NoError(t, l.store.Delete(t.Context(), []tier.Key{key})[0])
	other, err := l.store.Lease(t.Context(), tier.LeaseOptions{ID: "other"})
	require.NoError(t, err)
	require.NoError(t, other.Reserve([]tier.Object{{Key: key, Size: 9}})[0].Err)
	request, err := lib.Begin(t.Context(), "request", cover)
	require.NoError(t, err)
	require.Empty(t, request.Cover)
	require.Equal(t, 1, lib.Len())
	request.Release()
	require.NoError(t, other.Abort([]tier.Key{key})[0])
	other.Release()
}

// TestRequestsThatAreNotReleasedEnd: those of a process that was killed, too.
func TestRequestsThatAreNotReleasedEnd(t *testing.T) {
	l := openLevels(t, filepath.Join(t.TempDir(), "disk"), 4<<20)
	_, d := stored(t, l, 1)
	lib, err := chunks.Open(t.Context(), chunks.Options{
		Store: l.store, Space: space, Shape: shape, Scheme: kv.Scheme{ChunkTokens: window}, LeaseTime: time.Millisecond,
	})
	require.NoError(t, err)
	cover, err := lib.Find(d.tokens)
	require.NoError(t, err)
	_, err = lib.Begin(t.Context(), "request", cover)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(l.store.Leases()) == 0 }, time.Minute, time.Millisecond)
}

// TestThresholdsAreNotExplained: how many tokens are above one was said to be none.
func TestThresholdsAreNotExplained(t *testing.T) {
	l := openLevels(t, filepath.Join(t.TempDir(), "disk"), 4<<20)
	_, d := stored(t, l, 1)
	_, err := chunks.Explain(t.Context(), l.disk, d.tokens, chunks.ExplainOptions{
		Checks: []blend.Check{{Layer: 1, Selection: blend.Selection{Threshold: 1}}},
	})
	require.ErrorIs(t, err, fs.ErrInvalid)
}

// TestExplainingManySpacesTakesOneTable: each space took 4 MiB of its own, also one with a single chunk.
func TestExplainingManySpacesTakesOneTable(t *testing.T) {
	const spaces = 32
	l := openLevels(t, filepath.Join(t.TempDir(), "disk"), 4<<20)
	d := draw(t, rand.New(rand.NewPCG(1, 1)), 2*window)
	for i := range spaces {
		lib, err := chunks.Open(t.Context(), chunks.Options{
			Store: l.store, Space: fmt.Sprintf("%s.%02d", space, i), Shape: shape,
			Scheme: kv.Scheme{ChunkTokens: window},
		})
		require.NoError(t, err)
		// The first chunk is in every other space, and the second one in the others.
		require.NoError(t, lib.Put(t.Context(), d.tokens[i%2*window:][:window], d.chunks[i%2]))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	explained, err := chunks.Explain(t.Context(), l.disk, d.tokens, chunks.ExplainOptions{})
	runtime.ReadMemStats(&after)
	require.NoError(t, err)
	require.Len(t, explained, spaces)
	for i, e := range explained {
		require.Equal(t, fmt.Sprintf("%s.%02d", space, i), e.Space)
		require.Equal(t, 1, e.Known)
		require.Len(t, e.Chunks, 1, "a chunk of another space is not here")
		require.Equal(t, i%2*window, e.Chunks[0].Start)
	}
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(8<<20))
}

// TestSegmentsInTheLevels: documents of any length between separators, in any order.
func TestSegmentsInTheLevels(t *testing.T) {
	l := openLevels(t, filepath.Join(t.TempDir(), "disk"), 4<<20)
	hasher, err := kv.NewHasher(kv.Scheme{Algorithm: kv.SHA256CBOR, Legacy: true})
	require.NoError(t, err)
	separator := []int64{7, 7}
	database, err := kv.NewSegmentDatabase(hasher, kv.EngineKey{Model: "m", World: 1, DType: "bfloat16"}, separator)
	require.NoError(t, err)
	open := func() *chunks.Library {
		lib, err := chunks.Open(t.Context(), chunks.Options{
			Store: l.store, Space: space, Shape: shape, Segments: database,
		})
		require.NoError(t, err)
		return lib
	}
	lib := open()
	r := rand.New(rand.NewPCG(3, 3))
	segments := [][]int64{{1}, {2, 3, 4}, {5, 6, 7, 8, 9}, {7}}
	var kvs []blend.Chunk
	for _, tokens := range segments {
		kvs = append(kvs, drawChunk(t, r, len(tokens)))
		require.NoError(t, lib.Put(t.Context(), tokens, kvs[len(kvs)-1]))
	}
	require.ErrorIs(t, lib.Put(t.Context(), []int64{1, 7, 7, 2}, drawChunk(t, r, 4)), fs.ErrInvalid, "two segments")
	require.ErrorIs(t, lib.Put(t.Context(), nil, drawChunk(t, r, 0)), fs.ErrInvalid, "none")
	require.Zero(t, library(t, l).Len(), "chunks of one length are others")
	lib = open()
	require.Equal(t, 4, lib.Len())

	var prompt []int64
	for _, i := range []int{2, 0, 1} {
		prompt = slices.Concat(prompt, segments[i], separator)
	}
	prompt = append(prompt, 8, 8, 8) // the question
	cover, err := lib.Find(prompt)
	require.NoError(t, err)
	request, err := lib.Begin(t.Context(), "request", cover)
	require.NoError(t, err)
	require.Equal(t, []blend.Range{{Start: 5, End: 7}, {Start: 8, End: 10}, {Start: 13, End: 18}},
		blend.Gaps(request.Cover, len(prompt)), "separators and the question")
	table, err := rope.New(rope.Config{HeadDim: shape.HeadDim})
	require.NoError(t, err)
	dst, err := blend.New(shape, len(prompt))
	require.NoError(t, err)
	moves, err := request.Moves(table, dst)
	require.NoError(t, err)
	require.NoError(t, blend.MoveAll(moves, 0))
	row := shape.Row()
	require.Equal(t, kvs[1].Values(3), dst.Values(3)[10*row:13*row])
	request.Release()

	require.NoError(t, l.store.Delete(t.Context(), []tier.Key{{Space: space, Name: cover[0].Name}})[0])
	request, err = lib.Begin(t.Context(), "request", cover)
	require.NoError(t, err)
	require.Equal(t, cover[1:], request.Cover)
	require.Equal(t, 3, lib.Len())
	request.Release()
	explained, err := chunks.Explain(t.Context(), l.disk, prompt, chunks.ExplainOptions{})
	require.NoError(t, err)
	require.Empty(t, explained)
}
