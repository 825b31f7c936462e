package engine_test

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/tiertest"
	"github.com/ringcache/ringcache/kv"
	"github.com/ringcache/ringcache/kv/paged"
	"github.com/ringcache/ringcache/lmcache/engine"
	"github.com/ringcache/ringcache/tier"
)

func each(t *testing.T, which func(kind) bool, do func(t *testing.T, b *bed, k kind)) {
	t.Helper()
	for _, k := range kinds {
		if which(k) {
			t.Run(k.String(), func(t *testing.T) {
				b := newBed(t, t.Context(), 1<<20)
				defer b.end()
				do(t, b, k)
			})
		}
	}
}

func all(kind) bool       { return true }
func layered(k kind) bool { return k.layered }

// TestWhatOneStoresAnotherRetrieves: into other slots, from memory and from the level below, with a part that
// is left out.
func TestWhatOneStoresAnotherRetrieves(t *testing.T) {
	each(t, all, func(t *testing.T, b *bed, k kind) {
		r := request(upTo(14), 3)
		stored, err := b.worker(k, nil).save(r)
		require.NoError(t, err)
		end := 12 // a tail has a key of LMCache's alone
		if k.lmcache {
			end = 14
		}
		require.Equal(t, engine.Stored{New: end}, stored)
		again, err := b.worker(k, nil).save(r)
		require.NoError(t, err)
		require.Equal(t, engine.Stored{There: end}, again)

		for _, evict := range []bool{false, true} {
			w := b.worker(k, nil)
			if evict {
				b.evict()
			}
			other := request(upTo(14), 20)
			n, err := w.Lookup(t.Context(), other, nil)
			require.NoError(t, err)
			require.Equal(t, end, n)
			other.Skip = 4
			n, err = w.load(other)
			require.NoError(t, err)
			require.Equal(t, end, n)
			require.Equal(t, make([]byte, 4*12*k.layout.Planes()),
				w.layer(other.Slots[:4], 1), "tokens that are left out")
		}

		longer := request(append(upTo(8), 7, 7, 7, 7), 5)
		n, err := b.worker(k, nil).load(longer)
		require.NoError(t, err)
		require.Equal(t, 8, n, "the prefix that both have")
		n, err = b.worker(k, nil).load(request([]int64{1, 2, 3, 4}, 0))
		require.NoError(t, err)
		require.Zero(t, n)
	})
}

// layer returns the KV in slots.
func (w *worker) layer(slots []int64, layer int) []byte {
	out := make([]byte, w.buffers.Geometry().ChunkBytes(len(slots), true))
	require.NoError(w.b.t, w.buffers.GatherLayer(out, w.layerFormat(), layer, slots))
	return out
}

// TestNamesOfObjects: they lie on disks, and are shared with workers of the daemon, and with LMCache.
func TestNamesOfObjects(t *testing.T) {
	b := newBed(t, t.Context(), 1<<20)
	defer b.end()
	for _, k := range kinds[:2] {
		_, err := b.worker(k, nil).save(request(upTo(4), 0))
		require.NoError(t, err)
	}
	for _, i := range []int{4, 5} {
		_, err := b.worker(kinds[i], nil).save(request(upTo(4), 0))
		require.NoError(t, err)
	}
	space, err := b.worker(kinds[0], nil).options.Layout.Space(0, 0, "")
	require.NoError(t, err)
	h, err := kv.NewHasher(kv.Scheme{ChunkTokens: 4})
	require.NoError(t, err)
	chain := h.NewChain()
	require.NoError(t, chain.SetTokens(upTo(4)))
	name := h.Text(chain.Hash(0))
	chunks, err := newDatabase(t, b.worker(kinds[0], nil).options.Layout).Chunks(upTo(4), 0, nil)
	require.NoError(t, err)
	key := "org/model@1@0@" + chunks[0].Key.Hash + "@bfloat16"
	require.ElementsMatch(t, []string{
		space + " " + name,
		space + ".KV_T2D " + name + "@0", space + ".KV_T2D " + name + "@1", space + ".KV_T2D " + name + "@2",
		"lmcache " + key, "lmcache " + key + "@0", "lmcache " + key + "@1", "lmcache " + key + "@2",
	}, b.names())
}

// TestWhatDoesNotAgreeIsNoHit: model, dtype, shape, format, worker and salt.
func TestWhatDoesNotAgreeIsNoHit(t *testing.T) {
	each(t, all, func(t *testing.T, b *bed, k kind) {
		r := request(upTo(8), 0)
		_, err := b.worker(k, nil).save(r)
		require.NoError(t, err)
		same, err := b.worker(k, nil).Lookup(t.Context(), r, nil)
		require.NoError(t, err)
		require.Equal(t, 8, same)
		changes := map[string]func(*engine.Options){
			"model": func(o *engine.Options) { o.Layout.Model = "org/other" },
			"dtype": func(o *engine.Options) { o.Layout.Groups[0].DType = "float16" },
			"shape": func(o *engine.Options) {
				g := o.Buffers.Geometry()
				g.HeadSize *= 2
				o.Layout.Groups[0].Hidden *= 2
				o.Buffers = emptyBuffers(t, g)
			},
		}
		if !k.lmcache {
			changes["worker"] = func(o *engine.Options) { o.Layout.World, o.Worker = 2, 1 }
			changes["engine"] = func(o *engine.Options) { o.Layout.Engine = "other kernels" }
		}
		if k.layered && k.layout.Planes() == 2 {
			changes["format"] = func(o *engine.Options) {
				o.LayerFormat = map[paged.Format]paged.Format{paged.KV2TD: paged.KVT2D, 0: paged.KV2TD}[k.format]
			}
		}
		for what, change := range changes {
			w := b.worker(k, func(o *engine.Options) {
				change(o)
				if o.Database != nil {
					o.Database = newDatabase(t, o.Layout)
				}
			})
			n, err := w.Lookup(t.Context(), r, nil)
			require.NoError(t, err)
			require.Zero(t, n, what)
			n, err = w.load(r)
			require.NoError(t, err)
			require.Zero(t, n, what)
		}
		salted := r
		if k.lmcache {
			salted.Tags = []kv.Tag{{Name: "user", Value: "b"}}
		} else {
			salted.Salt = "b"
		}
		n, err := b.worker(k, nil).Lookup(t.Context(), salted, nil)
		require.NoError(t, err)
		require.Zero(t, n, "another user's")
	})
}

func emptyBuffers(t *testing.T, g paged.Geometry) *paged.Buffers {
	t.Helper()
	tensors := make([][]byte, g.Tensors())
	for i := range tensors {
		tensors[i] = make([]byte, g.TensorBytes())
	}
	b, err := paged.New(g, tensors)
	require.NoError(t, err)
	return b
}

// TestExpiredChunksAreStoredAgain: and are no hits before.
func TestExpiredChunksAreStoredAgain(t *testing.T) {
	each(t, func(k kind) bool { return !k.lmcache }, func(t *testing.T, b *bed, k kind) {
		now := time.Unix(1_700_000_000, 0)
		w := b.worker(k, func(o *engine.Options) { o.TTL, o.Now = time.Minute, func() time.Time { return now } })
		r := request(upTo(8), 0)
		_, err := w.save(r)
		require.NoError(t, err)
		now = now.Add(time.Minute)
		n, err := w.load(r)
		require.NoError(t, err)
		require.Equal(t, 8, n)
		now = now.Add(time.Millisecond)
		n, err = w.load(r)
		require.NoError(t, err)
		require.Zero(t, n)
		n, err = w.Lookup(t.Context(), r, nil)
		require.NoError(t, err)
		require.Zero(t, n)
		stored, err := w.save(r)
		require.NoError(t, err)
		require.Equal(t, engine.Stored{New: 8}, stored)
		n, err = w.load(r)
		require.NoError(t, err)
		require.Equal(t, 8, n)
	})
}

// TestLookupHolds: what a look-up has pinned is in memory until its lease ends.
func TestLookupHolds(t *testing.T) {
	each(t, all, func(t *testing.T, b *bed, k kind) {
		r := request(upTo(12), 0)
		w := b.worker(k, nil)
		_, err := w.save(r)
		require.NoError(t, err)
		b.evict()
		hold, err := b.store.Lease(t.Context(), tier.LeaseOptions{ID: "request"})
		require.NoError(t, err)
		n, err := w.Lookup(t.Context(), request(append(upTo(8), 1, 2, 3, 4), 0), hold)
		require.NoError(t, err)
		require.Equal(t, 8, n)
		parts := 1
		if k.layered {
			parts = layers
		}
		require.Len(t, hold.State().Pinned, 2*parts, "only what was found")
		b.fault.Fail(tier.ErrUnavailable)
		n, err = w.load(r)
		require.NoError(t, err)
		require.Equal(t, 8, n, "without the level below")
		b.fault.Fail(nil)
		hold.Release()
	})
}

// TestErrorsLeaveNothing: no object, no pin, no reservation, whatever goes wrong in the middle.
func TestErrorsLeaveNothing(t *testing.T) {
	each(t, all, func(t *testing.T, b *bed, k kind) {
		w := b.worker(k, nil)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r := request(upTo(12), 0)
		refused := []engine.Request{r, r, r, r, r, r}
		refused[0].Slots = r.Slots[1:]
		refused[1].Slots = append([]int64{-1}, r.Slots[1:]...)
		refused[2].Slots = append([]int64{64}, r.Slots[1:]...)
		refused[3].Skip = 3
		refused[4].Skip = 13
		refused[5].Salt, refused[5].Tags = "s", []kv.Tag{{Name: "n", Value: "v"}}
		for i, r := range refused {
			var err error
			if k.layered {
				_, err = w.SaveLayers(t.Context(), r)
			} else {
				_, err = w.Store(t.Context(), r)
			}
			require.ErrorIs(t, err, fs.ErrInvalid, "request %d", i)
		}
		if !k.layered {
			_, err := w.Store(ctx, r)
			require.ErrorIs(t, err, context.Canceled)
			_, err = w.SaveLayers(t.Context(), r)
			require.ErrorIs(t, err, fs.ErrInvalid)
			_, err = w.LoadLayers(t.Context(), r)
			require.ErrorIs(t, err, fs.ErrInvalid)
			require.Empty(t, b.names())
			_, err = w.save(r)
			require.NoError(t, err)
			_, err = w.Retrieve(ctx, r)
			require.ErrorIs(t, err, context.Canceled)
			b.requireNothingHeld()
			return
		}
		_, err := w.SaveLayers(ctx, r)
		require.ErrorIs(t, err, context.Canceled)
		_, err = w.Store(t.Context(), r)
		require.ErrorIs(t, err, fs.ErrInvalid)
		_, err = w.Retrieve(t.Context(), r)
		require.ErrorIs(t, err, fs.ErrInvalid)
		s, err := w.SaveLayers(t.Context(), r)
		require.NoError(t, err)
		require.NoError(t, s.Layer(0))
		require.ErrorContains(t, s.Layer(3), "layer 3 of 3")
		_, err = s.Commit()
		require.ErrorContains(t, err, "layer 1 was not copied")
		_, err = s.Commit()
		require.ErrorContains(t, err, "the Save has ended")
		require.ErrorContains(t, s.Layer(0), "the Save has ended")
		s.Abort()
		require.Empty(t, b.names())
		b.requireNothingHeld()
	})
}

// TestNoRoomStoresAPrefix: what has room stays usable, and costs no error.
func TestNoRoomStoresAPrefix(t *testing.T) {
	each(t, all, func(t *testing.T, b *bed, k kind) {
		small := newBed(t, t.Context(), int64(5*2*12*k.layout.Planes()*layers*chunkTokens/4)) // two and a half chunks
		defer small.end()
		small.fault.Fail(tier.ErrUnavailable) // what is in memory can't go to the level below, and stays
		w := small.worker(k, nil)
		stored, err := w.save(request(upTo(12), 0))
		require.NoError(t, err)
		require.Equal(t, 8, stored.New)
		n, err := w.load(request(upTo(12), 9))
		require.NoError(t, err)
		require.Equal(t, 8, n)
		small.fault.Fail(nil)
	})
}

// TestLayersAreLoadedInAWindow: while a layer is used, the level below is asked for those of the window, and
// for no others.
func TestLayersAreLoadedInAWindow(t *testing.T) {
	for window := 1; window <= 4; window++ {
		synctest.Test(t, func(t *testing.T) {
			b := newBed(t, t.Context(), 1<<20)
			defer b.end()
			k := kind{layout: paged.FlashAttention, layered: true}
			r := request(upTo(8), 0)
			_, err := b.worker(k, nil).save(r)
			require.NoError(t, err)
			b.evict()
			w := b.worker(k, func(o *engine.Options) { o.Window = window })
			load, err := w.LoadLayers(t.Context(), r)
			require.NoError(t, err)
			require.Equal(t, 8, load.End())
			read := map[string]int{}
			b.fault.Do(func(c tiertest.Call) tiertest.Answer {
				if is(c, "Get") {
					_, layer, _ := strings.Cut(c.Key.Name, "@")
					read[layer]++
				}
				return tiertest.Answer{}
			})
			used := 0
			for layer, err := range load.Layers(t.Context()) {
				require.NoError(t, err)
				time.Sleep(time.Minute) // the engine uses the layer, and everything that was begun ends
				synctest.Wait()
				require.Len(t, read, min(layer+window, layers), "layers that were read while layer %d is used", layer)
				w.requireLayer(r.Tokens, r.Slots, 0, 8, layer)
				used++
			}
			require.Equal(t, layers, used)
			require.Equal(t, map[string]int{"0": 2, "1": 2, "2": 2}, read)
			b.fault.Do(nil)
		})
	}
}

// TestALoadEndsAtAnyTime: by a break, by its context, or since a chunk has gone; nothing is pinned then.
func TestALoadEndsAtAnyTime(t *testing.T) {
	each(t, layered, func(t *testing.T, b *bed, k kind) {
		r := request(upTo(12), 0)
		w := b.worker(k, nil)
		_, err := w.save(r)
		require.NoError(t, err)
		b.evict()

		load, err := w.LoadLayers(t.Context(), r)
		require.NoError(t, err)
		for _, err := range load.Layers(t.Context()) {
			require.NoError(t, err)
			break
		}
		b.requireNothingHeld()

		var got []error
		var asked atomic.Bool
		for !asked.Load() { // a fetch for the load above may end behind the eviction
			b.evict()
			ctx, cancel := context.WithCancel(t.Context())
			b.fault.Do(func(c tiertest.Call) tiertest.Answer {
				if is(c, "Get") && strings.Contains(c.Key.String(), "@1") {
					asked.Store(true)
					cancel()
				}
				return tiertest.Answer{}
			})
			got = nil
			for _, err := range load.Layers(ctx) {
				got = append(got, err)
			}
			cancel()
		}
		require.ErrorIs(t, errors.Join(got...), context.Canceled)
		require.Error(t, got[len(got)-1], "the error is the last")
		b.fault.Do(nil)
		b.requireNothingHeld()

		for _, key := range keysWith(b, "@2") {
			require.NoError(t, b.store.Delete(t.Context(), []tier.Key{key})[0])
		}
		got = nil
		for _, err := range load.Layers(t.Context()) {
			got = append(got, err)
		}
		require.Len(t, got, 3)
		require.NoError(t, errors.Join(got[:2]...))
		require.ErrorIs(t, got[2], engine.ErrLost)
		require.ErrorIs(t, got[2], tier.ErrNotFound)
		require.ErrorContains(t, got[2], "layer 2 of the tokens 0 to 4")
		n, err := w.Lookup(t.Context(), r, nil)
		require.NoError(t, err)
		require.Zero(t, n, "without its last layer, a chunk is not there")
		stored, err := w.save(r)
		require.NoError(t, err)
		require.Equal(t, engine.Stored{New: 12}, stored, "the layer that was lost is stored again")
		n, err = w.load(r)
		require.NoError(t, err)
		require.Equal(t, 12, n)
	})
}

func keysWith(b *bed, suffix string) (keys []tier.Key) {
	for o, err := range b.store.List(b.ctx, "") {
		require.NoError(b.t, err)
		if strings.HasSuffix(o.Name, suffix) {
			keys = append(keys, o.Key)
		}
	}
	return keys
}

// TestNegativeSlotsAreSkippedByLoads: an engine that has the first tokens of a chunk leaves them alone.
func TestNegativeSlotsAreSkippedByLoads(t *testing.T) {
	each(t, all, func(t *testing.T, b *bed, k kind) {
		r := request(upTo(8), 0)
		w := b.worker(k, nil)
		_, err := w.save(r)
		require.NoError(t, err)
		w.clear(r.Slots)
		partly := r
		partly.Slots = append([]int64{-1, -1}, r.Slots[2:]...)
		var n int
		if k.layered {
			load, err := w.LoadLayers(t.Context(), partly)
			require.NoError(t, err)
			for _, err := range load.Layers(t.Context()) {
				require.NoError(t, err)
			}
			n = load.End()
		} else {
			n, err = w.Retrieve(t.Context(), partly)
			require.NoError(t, err)
		}
		require.Equal(t, 8, n)
		w.require(r.Tokens, r.Slots, 2, 8)
		require.Equal(t, make([]byte, 2*12*k.layout.Planes()), w.layer(r.Slots[:2], 0))
	})
}

// TestAStepThatIsTooSlowFails: its pins may have ended meanwhile, and with them what it copied.
func TestAStepThatIsTooSlowFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, t.Context(), 1<<20)
		defer b.end()
		k := kind{layout: paged.FlashAttention, layered: true}
		w := b.worker(k, nil)
		r := request(upTo(8), 0)
		s, err := w.SaveLayers(t.Context(), r)
		require.NoError(t, err)
		for layer := range layers {
			time.Sleep(4 * time.Minute)
			require.NoError(t, s.Layer(layer), "each step renews the lease")
		}
		time.Sleep(6 * time.Minute)
		_, err = s.Commit()
		require.ErrorContains(t, err, "Options.LeaseTime")
		require.Empty(t, b.names())
	})
}

func TestSkipOf(t *testing.T) {
	n, err := engine.SkipOf(nil)
	require.NoError(t, err)
	require.Zero(t, n)
	n, err = engine.SkipOf([]bool{false, false, true, true})
	require.NoError(t, err)
	require.Equal(t, 2, n)
	n, err = engine.SkipOf([]bool{false})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	_, err = engine.SkipOf([]bool{false, true, false})
	require.ErrorIs(t, err, fs.ErrInvalid)
	require.ErrorContains(t, err, "token 2")
}

func TestOptionsAreChecked(t *testing.T) {
	b := newBed(t, t.Context(), 1<<20)
	defer b.end()
	for text, change := range map[string]func(*engine.Options){
		"there is no Store":             func(o *engine.Options) { o.Store = nil },
		"there are no Buffers":          func(o *engine.Options) { o.Buffers = nil },
		"worker 1":                      func(o *engine.Options) { o.Worker = 1 },
		"several groups":                func(o *engine.Options) { o.Layout.Groups[0].Window = 1 },
		"8 slots in a chunk of 4":       func(o *engine.Options) { o.Layout.Groups[0].Slots = 8 },
		"the layout has 4 layers":       func(o *engine.Options) { o.Layout.Groups[0].Layers = 4 },
		"7 elements of bfloat16":        func(o *engine.Options) { o.Layout.Groups[0].Hidden = 7 },
		"6 elements of float32":         func(o *engine.Options) { o.Layout.Groups[0].DType = "float32" },
		"the format KV_2LTD of a layer": func(o *engine.Options) { o.LayerFormat = paged.KV2LTD },
		"the format KV_MLA_FMT of a":    func(o *engine.Options) { o.LayerFormat = paged.KVMLA },
		"a window of -1 layers":         func(o *engine.Options) { o.Window = -1 },
		"TTL is -1ns":                   func(o *engine.Options) { o.TTL = -1 },
		"LeaseTime 1ms":                 func(o *engine.Options) { o.LeaseTime = time.Millisecond },
		"need each other":               func(o *engine.Options) { o.Space = "s" },
		"no TTL with a Database": func(o *engine.Options) {
			o.TTL, o.Space, o.Database = 1, "s", newDatabase(t, o.Layout)
		},
		`the layout is of "org/other"`: func(o *engine.Options) {
			o.Space, o.Database = "s", newDatabase(t, o.Layout)
			o.Layout.Model = "org/other"
		},
		`no number for the dtype "int16"`: func(o *engine.Options) {
			o.Layout.Groups[0].DType = "int16"
			o.Space, o.Database = "s", newDatabase(t, o.Layout)
		},
	} {
		o := b.worker(kinds[0], nil).options
		change(&o)
		require.ErrorIs(t, o.Validate(), fs.ErrInvalid, text)
		_, err := engine.New(o)
		require.ErrorContains(t, err, text)
	}
}

// TestSegmentsOfAnyLengthAreRefused: LMCache has no description of 2 GiB or more, and segments are as long as
// a client wants.
func TestSegmentsOfAnyLengthAreRefused(t *testing.T) {
	b := newBed(t, t.Context(), 1<<20)
	defer b.end()
	g := paged.Geometry{
		Layout: paged.MLA, Layers: 1, Blocks: 1, BlockTokens: 1,
		Heads: 1, HeadSize: 1 << 19, ElementSize: 2,
	}
	h, err := kv.NewHasher(kv.Scheme{Algorithm: kv.SHA256CBOR, ChunkTokens: 1, Legacy: true})
	require.NoError(t, err)
	database, err := kv.NewSegmentDatabase(h, kv.EngineKey{Model: "m", World: 1, DType: "bfloat16"}, []int64{1})
	require.NoError(t, err)
	e, err := engine.New(engine.Options{
		Store: b.store, Buffers: emptyBuffers(t, g), Database: database, Space: "lmcache",
		Layout: kv.Layout{
			Model: "m", World: 1, ChunkTokens: 1,
			Groups: []kv.Group{{Layers: 1, Slots: 1, Hidden: 1 << 19, DType: "bfloat16", Planes: 1, BlockTokens: 1}},
		},
	})
	require.NoError(t, err)
	_, err = e.Lookup(t.Context(), engine.Request{Tokens: make([]int64, 2048)}, nil)
	require.ErrorIs(t, err, fs.ErrInvalid)
	require.ErrorContains(t, err, "the tokens 0 to 2048: a tensor of the shape [1 1 2048 524288]")
	_, err = e.Lookup(t.Context(), engine.Request{Tokens: make([]int64, 2047)}, nil)
	require.NoError(t, err)
}

// TestEqualSegmentsStayPinned: segments with the same tokens are one object, and the one that was found stays
// pinned, though the same is behind the first miss, too.
func TestEqualSegmentsStayPinned(t *testing.T) {
	for _, layered := range []bool{false, true} {
		b := newBed(t, t.Context(), 1<<20)
		w := b.worker(kind{layout: paged.FlashAttention, lmcache: true, layered: layered}, func(o *engine.Options) {
			h, err := kv.NewHasher(kv.Scheme{Algorithm: kv.SHA256CBOR, ChunkTokens: chunkTokens, Legacy: true})
			require.NoError(t, err)
			o.Database, err = kv.NewSegmentDatabase(h,
				kv.EngineKey{Model: o.Layout.Model, World: 1, DType: "bfloat16"}, []int64{9})
			require.NoError(t, err)
		})
		stored, err := w.save(request([]int64{1, 2, 3, 9, 1, 2, 3}, 0))
		require.NoError(t, err)
		require.Equal(t, engine.Stored{New: 3, There: 3}, stored)
		hold, err := b.store.Lease(t.Context(), tier.LeaseOptions{ID: "request"})
		require.NoError(t, err)
		n, err := w.Lookup(t.Context(), engine.Request{Tokens: []int64{1, 2, 3, 9, 7, 9, 1, 2, 3}}, hold)
		require.NoError(t, err)
		require.Equal(t, 3, n)
		require.Len(t, hold.State().Pinned, map[bool]int{false: 1, true: layers}[layered])
		hold.Release()
		b.end()
	}
}

// TestLookupThatFailsPinsNothing: also not what it had found before, in front of what is on its way.
func TestLookupThatFailsPinsNothing(t *testing.T) {
	b := newBed(t, t.Context(), 1<<20)
	w := b.worker(kinds[0], nil)
	r := engine.Request{Tokens: upTo(520 * chunkTokens)} // more chunks than are asked for at a time
	for i := range r.Tokens {
		r.Slots = append(r.Slots, int64(i%64))
	}
	keys := func() map[tier.Key]bool {
		all := map[tier.Key]bool{}
		for o, err := range b.memory.List(t.Context(), "") {
			require.NoError(t, err)
			all[o.Key] = true
		}
		return all
	}
	n := 519 * chunkTokens
	_, err := w.Store(t.Context(), engine.Request{Tokens: r.Tokens[:n], Slots: r.Slots[:n]})
	require.NoError(t, err)
	before := keys()
	_, err = w.Store(t.Context(), r)
	require.NoError(t, err)
	b.drain()
	for k := range keys() {
		if !before[k] {
			b.memory.Delete(t.Context(), []tier.Key{k}) // the last one is on the disk alone
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	b.fault.Do(func(tiertest.Call) tiertest.Answer {
		cancel()
		return tiertest.Answer{Hang: true}
	})
	hold, err := b.store.Lease(t.Context(), tier.LeaseOptions{ID: "request"})
	require.NoError(t, err)
	n, err = w.Lookup(ctx, r, hold)
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, n)
	require.Empty(t, hold.State().Pinned)
	hold.Release()
	b.fault.Do(nil)
	b.end()
}
