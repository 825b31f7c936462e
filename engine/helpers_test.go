package engine_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ringcache/ringcache/engine"
	"github.com/ringcache/ringcache/engine/enginetest"
	"github.com/ringcache/ringcache/engine/zmq"
	"github.com/ringcache/ringcache/internal/goldentest"
	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(child())
	}
	goleak.VerifyTestMain(goldentest.ReadOnlyTable(m))
}

const (
	placeholder = 4 // the token that stands for an image
	rows        = 6 // of the usual item, one token for each
	rowBytes    = 100
)

// model is that of the stand-in: an item has a row of bytes for each token.
func model() engine.Model {
	token := uint32(placeholder)
	return engine.Model{VocabSize: enginetest.Vocabulary, MaxModelLen: 4096, MaxBatchedTokens: 512, Modalities: map[string]engine.Modality{"image": {
		Elems: []engine.ElemSpec{{Key: "pixels", DType: "uint8", Shape: []int{-1, rowBytes}}},
		Tokens: func(it *serde.Item) (int, error) {
			e, _ := it.Lookup("pixels")
			return e.Data.(*serde.Tensor).Shape[0], nil
		},
		Placeholder: &token,
	}}}
}

// picture is the item of a key.
func picture(key string, rows int) *serde.Item {
	b := bytes.Repeat(binary.LittleEndian.AppendUint64([]byte(fmt.Sprintf("%-12.12s", key)), 7), rows*rowBytes/20)
	return &serde.Item{Modality: "image", Elems: []serde.Elem{{
		Key: "pixels", Data: &serde.Tensor{DType: "uint8", Shape: []int{rows, rowBytes}, Data: b},
	}}}
}

// prompt has the places of n pictures in it, and where they are.
func prompt(n int) ([]uint32, []engine.Placeholder) {
	p, at := []uint32{1, 20}, []engine.Placeholder(nil)
	for i := range n {
		at = append(at, engine.Placeholder{Offset: len(p), Length: rows})
		p = append(p, slices.Repeat([]uint32{placeholder}, rows)...)
		p = append(p, uint32(30+i))
	}
	return p, at
}

// rig is a client with a stand-in.
type rig struct {
	*engine.Client
	t     testing.TB
	cache mmcache.Cache
	e     *enginetest.Engine
	o     enginetest.Options
	ctx   context.Context
}

type setup struct {
	mode     string
	version  string
	workers  int
	capacity float64
	client   func(*engine.Options)
	engine   func(*enginetest.Options)
	idle     bool // no engine is started
}

func newRig(t testing.TB, s setup) *rig {
	t.Helper()
	g := pycompat.Newest()
	if s.version != "" {
		var err error
		g, err = pycompat.Lookup(s.version)
		require.NoError(t, err)
	}
	if s.capacity == 0 {
		s.capacity = 1 << 20
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	r := &rig{t: t, ctx: ctx, o: enginetest.Options{Generation: g, Workers: s.workers}}
	dir, err := os.MkdirTemp("/dev/shm", "rc-engine-test-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	r.cache, err = mmcache.Open(mmcache.Options{
		Mode: s.mode, Generation: g, Capacity: s.capacity, MaxItem: 1 << 16,
		Shared: mmcache.SharedOptions{Readers: 1, Name: "mm", Dir: dir, MaxObject: int(min(s.capacity, 1<<16))},
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, r.cache.CheckStructure())
		require.NoError(t, r.cache.Close())
	})
	o := engine.Options{Transport: zmq.Transport{}, Model: model(), Cache: r.cache, Grace: time.Minute}
	if !slices.Contains(g.ReadyFields, "world_size") {
		o.Readers = max(s.workers, 1)
	}
	if !slices.Contains(g.ReadyFields, "vllm_version") {
		o.Generation = g
	}
	if s.client != nil {
		s.client(&o)
	}
	r.Client, err = engine.New(o)
	require.NoError(t, err)
	t.Cleanup(func() {
		over, cancel := context.WithCancel(context.Background())
		cancel()
		require.NoError(t, r.Close(over))
		if r.e != nil {
			r.e.Kill()
		}
	})
	switch s.mode {
	case "shm":
		r.o.Segment, r.o.Dir, r.o.RingSize = r.cache.(*mmcache.Shared).Name(), dir, int(s.capacity)
	case "lru":
		r.o.Mirror = s.capacity
	}
	r.o.Handshake = r.Address().Handshake
	if s.engine != nil {
		s.engine(&r.o)
	}
	if !s.idle {
		require.NoError(t, r.start())
	}
	return r
}

// start starts a stand-in, and the client with it, which waits no longer than the
// stand-in tries.
func (r *rig) start() error {
	r.t.Helper()
	type started struct {
		e   *enginetest.Engine
		err error
	}
	ch := make(chan started, 1)
	ctx, cancel := context.WithCancelCause(r.ctx)
	defer cancel(nil)
	go func() {
		e, err := enginetest.Start(ctx, r.o)
		if err != nil {
			cancel(err)
		}
		ch <- started{e, err}
	}()
	err := r.Start(ctx)
	if err != nil {
		cancel(err)
	}
	s := <-ch
	r.e = s.e
	if err != nil && s.e != nil {
		s.e.Kill()
	}
	return err
}

var itemIDs atomic.Int64 // no two open requests of a cache have one id

// begin starts a request for the pictures of some keys, and makes them; made
// reports how many.
func (r *rig) begin(keys ...string) (req *mmcache.Request, made int) {
	r.t.Helper()
	req, made, err := r.tryBegin(keys...)
	require.NoError(r.t, err)
	return req, made
}

// tryBegin is begin for any goroutine.
func (r *rig) tryBegin(keys ...string) (req *mmcache.Request, made int, err error) {
	var wants []mmcache.Want
	for _, k := range keys {
		wants = append(wants, mmcache.Want{Key: k, Bytes: 4096, Modality: "image"})
	}
	if req, err = r.cache.Begin(r.ctx, fmt.Sprint("items-", itemIDs.Add(1)), wants...); err != nil {
		return nil, 0, err
	}
	for _, k := range keys {
		it, err := req.Item(r.ctx, k, mmcache.Ready(picture(k, rows), nil))
		if err != nil {
			req.Rollback()
			return nil, 0, err
		}
		if !it.Hit {
			made++
		}
	}
	return req, made, nil
}

// request is a request for the pictures of some keys.
func (r *rig) request(n int, keys ...string) engine.Request {
	r.t.Helper()
	q, err := r.tryRequest(n, keys...)
	require.NoError(r.t, err)
	return q
}

// tryRequest is request for any goroutine.
func (r *rig) tryRequest(n int, keys ...string) (q engine.Request, err error) {
	p, at := prompt(len(keys))
	q = engine.Request{ID: "r", Prompt: p, Placeholders: at, Params: map[string]any{"max_tokens": n}}
	if len(keys) > 0 {
		q.Items, _, err = r.tryBegin(keys...)
	}
	return q, err
}

// want is what the stand-in answers to it.
func want(n int, keys ...string) []uint32 {
	p, _ := prompt(len(keys))
	var items []*serde.Item
	for _, k := range keys {
		items = append(items, picture(k, rows))
	}
	return enginetest.Tokens(p, n, items...)
}

// ask makes a request and checks the answer.
func (r *rig) ask(n int, keys ...string) {
	r.t.Helper()
	s, err := r.Generate(r.ctx, r.request(n, keys...))
	require.NoError(r.t, err)
	got, err := s.Collect()
	require.NoError(r.t, err)
	require.Equal(r.t, [][]uint32{want(n, keys...)}, got)
}

// until waits for something that comes true by itself.
func (r *rig) until(cond func() bool) {
	r.t.Helper()
	require.NoError(r.t, enginetest.Wait(r.ctx, cond))
}

// drained waits until nothing keeps any item, and shows it: everything can be
// cleared.
func (r *rig) drained() {
	r.t.Helper()
	r.until(func() bool { return r.cache.Stats().Quarantined == 0 && r.Stats().InFlight == 0 })
	require.NoError(r.t, r.cache.Clear(r.ctx, func(lrusync.Envelope) error {
		if r.o.Mirror > 0 {
			r.e.Forget()
		}
		return nil
	}))
	require.Zero(r.t, r.cache.Stats().CachedBytes)
}
