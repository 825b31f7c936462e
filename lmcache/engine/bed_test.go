package engine_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ringcache/ringcache/fuzz/tiertest"
	"github.com/ringcache/ringcache/kv"
	"github.com/ringcache/ringcache/kv/flow"
	"github.com/ringcache/ringcache/kv/paged"
	"github.com/ringcache/ringcache/lmcache/engine"
	"github.com/ringcache/ringcache/tier"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// chunkTokens is the length of chunks in tests.
const chunkTokens = 4

// tester is a test, or one of rapid's.
type tester interface {
	require.TestingT
	Helper()
	Cleanup(f func())
}

// bed is a store over a memory level and a lower one.
type bed struct {
	t      tester
	ctx    context.Context
	store  *tier.Store
	memory *tiertest.Map
	disk   *tiertest.Map
	fault  *tiertest.Fault // in front of disk
	full   bool            // memory has less room than a test wants
}

func newBed(t tester, ctx context.Context, memory int64) *bed {
	t.Helper()
	b := &bed{
		t: t, ctx: ctx, memory: tiertest.NewMap(tiertest.MapOptions{Name: "memory", Capacity: memory}),
		disk: tiertest.NewMap(tiertest.MapOptions{Name: "disk"}),
	}
	b.fault = tiertest.NewFault(b.disk)
	var err error
	b.store, err = tier.Open(ctx, tier.Options{
		Memory: b.memory, Lower: []tier.Lower{{Level: b.fault}}, NegativeTTL: time.Millisecond,
	})
	require.NoError(t, err)
	return b
}

// end closes the store and checks that nothing is left of calls.
func (b *bed) end() {
	b.t.Helper()
	b.requireNothingHeld()
	assert.NoError(b.t, b.store.Close())
	for _, l := range b.memory.Leases() {
		assert.Empty(b.t, l.Reserved, "reservations of %s", l.ID)
	}
	assert.NoError(b.t, b.fault.Close())
	assert.NoError(b.t, b.memory.Close())
}

func (b *bed) requireNothingHeld() {
	b.t.Helper()
	b.drain()
	assert.Empty(b.t, b.store.Leases(), "those of fetches that were begun are the store's own")
}

func (b *bed) drain() {
	b.t.Helper()
	_, err := b.store.Drain(context.WithoutCancel(b.ctx))
	if b.full { // then some objects did not reach the disk, which is the error
		require.Zero(b.t, b.store.State().Backlog)
		return
	}
	require.NoError(b.t, err)
}

// evict drops everything from memory that the disk has.
func (b *bed) evict() {
	b.t.Helper()
	b.drain()
	for o, err := range b.memory.List(b.ctx, "") {
		require.NoError(b.t, err)
		b.memory.Delete(b.ctx, []tier.Key{o.Key})
	}
}

func (b *bed) names() (all []string) {
	b.t.Helper()
	b.drain()
	for o, err := range b.store.List(b.ctx, "") {
		require.NoError(b.t, err)
		all = append(all, o.Space+" "+o.Name)
	}
	return all
}

// A kind is one way to use an engine.
type kind struct {
	layout  paged.Layout
	lmcache bool // LMCache's keys
	layered bool
	format  paged.Format
}

func (k kind) String() string {
	return fmt.Sprintf("%s,lmcache=%t,layered=%t,%v", k.layout, k.lmcache, k.layered, k.format)
}

var kinds = []kind{
	{layout: paged.FlashAttention},
	{layout: paged.FlashInferHND, lmcache: true},
	{layout: paged.MLA},
	{layout: paged.MLA, lmcache: true},
	{layout: paged.FlashAttention, layered: true}, {layout: paged.FlashInfer, layered: true, lmcache: true},
	{layout: paged.FlashAttentionHND, layered: true, format: paged.KV2TD}, {layout: paged.MLA, layered: true},
	{layout: paged.MLA, layered: true, lmcache: true}, {layout: paged.Packed, layered: true, lmcache: true},
}

const layers = 3

// worker is an engine with its buffers.
type worker struct {
	*engine.Engine
	b       *bed
	buffers *paged.Buffers
	options engine.Options
}

func (b *bed) worker(k kind, change func(*engine.Options)) *worker {
	b.t.Helper()
	g := paged.Geometry{
		Layout: k.layout, Layers: layers,
		Blocks: 32, BlockTokens: 2, Heads: 2, HeadSize: 3, ElementSize: 2,
	}
	if k.layout == paged.MLA {
		g.Heads, g.HeadSize = 1, 6
	}
	tensors := make([][]byte, g.Tensors())
	for i := range tensors {
		tensors[i] = make([]byte, g.TensorBytes())
	}
	buffers, err := paged.New(g, tensors)
	require.NoError(b.t, err)
	o := engine.Options{
		Store: b.store, Buffers: buffers, Layered: k.layered, LayerFormat: k.format,
		Layout: kv.Layout{
			Model: "org/model", World: 1, ChunkTokens: chunkTokens,
			Groups: []kv.Group{
				{
					Layers: layers, Slots: chunkTokens, Hidden: 6, DType: "bfloat16",
					Planes: k.layout.Planes(), BlockTokens: 2,
				},
			},
		},
	}
	if k.lmcache {
		o.Space = "lmcache"
		o.Database = newDatabase(b.t, o.Layout)
	}
	if change != nil {
		change(&o)
	}
	e, err := engine.New(o)
	require.NoError(b.t, err)
	return &worker{e, b, buffers, o}
}

func newDatabase(t tester, l kv.Layout) *kv.TokenDatabase {
	h, err := kv.NewHasher(kv.Scheme{
		Algorithm: kv.SHA256CBOR, ChunkTokens: chunkTokens,
		Seed: "0", Legacy: true, KeepTail: true,
	})
	require.NoError(t, err)
	d, err := kv.NewTokenDatabase(h, kv.EngineKey{Model: l.Model, World: l.World, DType: l.Groups[0].DType})
	require.NoError(t, err)
	return d
}

// is reports whether a call is of a method.
func is(c tiertest.Call, method string) bool { return c.Method == method }

// layerFormat is in which format tests read and write layers of the buffers.
func (w *worker) layerFormat() paged.Format {
	if w.buffers.Geometry().Layout.Planes() == 1 {
		return paged.KVMLA
	}
	return paged.KVT2D
}

// truth is the KV of tokens in one layer: that of each depends on all in front of it.
func (w *worker) truth(tokens []int64, layer int) []byte {
	h := fnv.New64a()
	g := w.buffers.Geometry()
	row := g.ChunkBytes(1, true)
	out := make([]byte, 0, row*len(tokens))
	for _, token := range tokens {
		fmt.Fprint(h, token, ",")
		r := rand.New(rand.NewPCG(h.Sum64(), uint64(layer))) //nolint:gosec // it only has to be the same each time
		for range row {
			out = append(out, byte(r.Uint32()))
		}
	}
	return out
}

// compute puts the KV of tokens into their slots.
func (w *worker) compute(tokens, slots []int64) {
	w.b.t.Helper()
	for layer := range layers {
		w.computeLayer(tokens, slots, layer)
	}
}

func (w *worker) computeLayer(tokens, slots []int64, layer int) {
	w.b.t.Helper()
	require.NoError(w.b.t, w.buffers.ScatterLayer(slots, layer, w.layerFormat(), w.truth(tokens, layer)))
}

// clear overwrites slots.
func (w *worker) clear(slots []int64) {
	w.b.t.Helper()
	for layer := range layers {
		empty := make([]byte, w.buffers.Geometry().ChunkBytes(len(slots), true))
		require.NoError(w.b.t, w.buffers.ScatterLayer(slots, layer, w.layerFormat(), empty))
	}
}

func (w *worker) requireLayer(tokens, slots []int64, from, to, layer int) {
	w.b.t.Helper()
	if from >= to {
		return
	}
	g := w.buffers.Geometry()
	got := make([]byte, g.ChunkBytes(to-from, true))
	require.NoError(w.b.t, w.buffers.GatherLayer(got, w.layerFormat(), layer, slots[from:to]))
	row := g.ChunkBytes(1, true)
	require.Equal(w.b.t, w.truth(tokens[:to], layer)[from*row:], got,
		"layer %d of the tokens %d to %d", layer, from, to)
}

// require checks that the KV of tokens is in their slots.
func (w *worker) require(tokens, slots []int64, from, to int) {
	w.b.t.Helper()
	for layer := range layers {
		w.requireLayer(tokens, slots, from, to, layer)
	}
}

// save stores a request, whole or layer by layer. Layers are computed one after the other.
func (w *worker) save(r engine.Request) (engine.Stored, error) {
	w.b.t.Helper()
	if !w.options.Layered {
		w.compute(r.Tokens, r.Slots)
		return w.Store(w.b.ctx, r)
	}
	s, err := w.SaveLayers(w.b.ctx, r)
	if err != nil {
		return engine.Stored{}, err
	}
	for layer := range layers {
		w.computeLayer(r.Tokens, r.Slots, layer)
		require.NoError(w.b.t, s.Layer(layer))
		w.clear(r.Slots) // the engine has gone on
	}
	return s.Commit()
}

// load loads a request, and checks each layer when it is there.
func (w *worker) load(r engine.Request) (int, error) {
	w.b.t.Helper()
	if !w.options.Layered {
		end, err := w.Retrieve(w.b.ctx, r)
		w.require(r.Tokens, r.Slots, r.Skip, end)
		return end, err
	}
	l, err := w.LoadLayers(w.b.ctx, r)
	if err != nil {
		return 0, err
	}
	next := 0
	for layer, err := range l.Layers(w.b.ctx) {
		if err != nil {
			return l.End(), err
		}
		require.Equal(w.b.t, next, layer)
		w.requireLayer(r.Tokens, r.Slots, r.Skip, l.End(), layer)
		next++
	}
	require.Equal(w.b.t, layers, next)
	w.require(r.Tokens, r.Slots, r.Skip, l.End())
	return l.End(), nil
}

// request returns a request whose tokens count up from first, in slots that begin anywhere.
func request(tokens []int64, block int64) engine.Request {
	blocks := make([]int64, 0, len(tokens)/2+1)
	for i := range int64(len(tokens)/2 + 1) {
		blocks = append(blocks, (block+i*7)%32)
	}
	return engine.Request{Tokens: tokens, Slots: flow.AppendSlots(nil, blocks, 2, len(tokens))}
}

func upTo(n int64) []int64 {
	all := make([]int64, n)
	for i := range all {
		all[i] = 100 + int64(i)
	}
	return all
}
