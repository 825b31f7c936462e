package engine_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/engine"
	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/serde"
)

// TestRefused: what would harm the engine is never sent. The engine hears nothing
// of it, the items are as they were, and the right request passes.
func TestRefused(t *testing.T) {
	type change = func(q *engine.Request)
	param := func(name string, v any) change { return func(q *engine.Request) { q.Params[name] = v } }
	place := func(f func(p *engine.Placeholder)) change {
		return func(q *engine.Request) { f(&q.Placeholders[1]) }
	}
	vocabulary := uint32(256)
	cases := map[string]change{
		"empty prompt":        func(q *engine.Request) { q.Prompt, q.Placeholders, q.Items = nil, nil, nil },
		"token":               func(q *engine.Request) { q.Prompt[0] = vocabulary },
		"large token":         func(q *engine.Request) { q.Prompt[0] = math.MaxUint32 },
		"long prompt":         func(q *engine.Request) { q.Prompt = append(q.Prompt, make([]uint32, 1<<22)...) },
		"eos":                 func(q *engine.Request) { q.EOS = &vocabulary },
		"wrong type":          param("max_tokens", "eight"),
		"wrong float":         param("temperature", "hot"),
		"nan":                 param("temperature", math.NaN()),
		"negative":            param("temperature", -1.0),
		"top_p":               param("top_p", 1.5),
		"max_tokens":          param("max_tokens", 0),
		"unknown":             param("temprature", 1.0),
		"nested":              param("stop_token_ids", []any{"x"}),
		"stop token":          param("stop_token_ids", []int{1, 256}),
		"negative stop token": param("stop_token_ids", []int{-1}),
		"allowed token":       param("allowed_token_ids", []uint32{1000}),
		"biased token":        param("logit_bias", map[int]float64{300: 1}),
		"stop text":           param("stop", []string{"."}),
		"one stop text":       param("stop", "."),
		"bad words":           param("bad_words", []string{"x"}),
		"logprobs":            param("logprobs", 257),
		"traced token":        param("trace_decode_token_ids", []int{256}),
		"no n":                param("n", 0),
		"large n":             param("n", 1<<40),
		"half n":              param("n", 1.5),
		"not utf-8":           func(q *engine.Request) { q.ID = "\xff" },

		"no placeholders": func(q *engine.Request) { q.Placeholders = nil },
		"one placeholder": func(q *engine.Request) { q.Placeholders = q.Placeholders[:1] },
		"no items":        func(q *engine.Request) { q.Items = nil },
		"modality":        place(func(p *engine.Placeholder) { p.Modality = "audio" }),
		"short":           place(func(p *engine.Placeholder) { p.Length-- }),
		"long":            place(func(p *engine.Placeholder) { p.Length++ }),
		"none":            place(func(p *engine.Placeholder) { p.Length = 0 }),
		"beyond":          place(func(p *engine.Placeholder) { p.Offset = 100 }),
		"overflow":        place(func(p *engine.Placeholder) { p.Offset, p.Length = 5, math.MaxInt }),
		"before":          place(func(p *engine.Placeholder) { p.Offset = -1 }),
		"shifted":         place(func(p *engine.Placeholder) { p.Offset++ }),
		"overlap":         place(func(p *engine.Placeholder) { p.Offset = 5 }),
		"order":           func(q *engine.Request) { p := q.Placeholders; p[0], p[1] = p[1], p[0] },
		"other token":     func(q *engine.Request) { q.Prompt[q.Placeholders[1].Offset+2] = 9 },
		"mask length":     place(func(p *engine.Placeholder) { p.IsEmbed = []bool{true} }),
		"mask count":      place(func(p *engine.Placeholder) { p.IsEmbed = []bool{true, true, true, true, true, false} }),
		"too many": func(q *engine.Request) {
			q.Placeholders = append(q.Placeholders, engine.Placeholder{Offset: 15, Length: 1})
		},
		"two of the place": func(q *engine.Request) { q.Placeholders[1] = q.Placeholders[0] },
	}
	for _, m := range []mmcache.Mode{mmcache.LRU, mmcache.SHM} {
		r := newRig(t, setup{mode: m})
		r.ask(1, "b") // which is omitted, in mode lru
		for name, f := range cases {
			t.Run(fmt.Sprintf("%s/%s", m, name), func(t *testing.T) {
				sent := len(r.e.Requests())
				q := r.request(2, "a"+name, "b")
				items := q.Items
				good := q
				good.Prompt = append([]uint32{}, q.Prompt...)
				good.Placeholders = append([]engine.Placeholder{}, q.Placeholders...)
				good.Params = engine.Params{"max_tokens": 2}
				f(&q)
				_, err := r.Generate(r.ctx, q)
				require.ErrorIs(t, err, engine.ErrRefused)
				require.ErrorContains(t, err, "not sent")
				t.Log(err)
				require.Len(t, r.e.Requests(), sent)
				s, err := r.Generate(r.ctx, good)
				require.NoError(t, err)
				got, err := s.Collect()
				require.NoError(t, err)
				require.Equal(t, want(2, "a"+name, "b"), got[0])
				require.Len(t, r.e.Requests(), sent+1)
				items.Rollback()
			})
		}
		require.NoError(t, r.e.Fatal())
		r.drained()
	}
}

// TestWrongItems: items that are not what the model takes.
func TestWrongItems(t *testing.T) {
	tensor := func(d serde.DType, shape ...int) *serde.Tensor {
		x := &serde.Tensor{DType: d, Shape: shape}
		n, err := x.NBytes()
		require.NoError(t, err)
		x.Data = make([]byte, n)
		return x
	}
	elem := func(key string, d serde.Data) *serde.Item {
		return &serde.Item{Modality: "image", Elems: []serde.Elem{{Key: key, Data: d}}}
	}
	flat := elem("pixels", tensor(serde.DTypeUint8, rows, rowBytes))
	flat.Elems[0].Field = serde.FlatFromSizes(rows)
	more := elem("pixels", tensor(serde.DTypeUint8, rows, rowBytes))
	more.Elems = append(more.Elems, serde.Elem{Key: "more", Data: serde.Int(1)})
	cases := map[string]*serde.Item{
		"dtype":          elem("pixels", tensor(serde.DTypeFloat32, rows, rowBytes)),
		"rows":           elem("pixels", tensor(serde.DTypeUint8, rows-1, rowBytes)),
		"width":          elem("pixels", tensor(serde.DTypeUint8, rows, rowBytes+1)),
		"dims":           elem("pixels", tensor(serde.DTypeUint8, rows, rowBytes, 1)),
		"name":           elem("pixel", tensor(serde.DTypeUint8, rows, rowBytes)),
		"kind":           elem("pixels", serde.Int(7)),
		"field":          flat,
		"more":           more,
		"forged address": serde.NewAddressItem(serde.Address{Address: 0, ID: 0, Signature: make([]byte, 32)}, "image"),
	}
	for _, m := range modes {
		r := newRig(t, setup{mode: m})
		for name, it := range cases {
			t.Run(m.String()+"/"+name, func(t *testing.T) {
				q := r.request(1, "good")
				require.NotNil(t, q.Items)
				q.Items.Rollback()
				items, err := r.cache.Begin(r.ctx, "x", mmcache.Want{Key: name, Modality: "image"})
				require.NoError(t, err)
				_, err = items.Item(r.ctx, name, mmcache.Ready(it, nil))
				require.NoError(t, err)
				q.Items = items
				_, err = r.Generate(r.ctx, q)
				require.ErrorIs(t, err, engine.ErrRefused)
				t.Log(err)
				items.Rollback()
			})
		}
		require.Empty(t, r.e.Requests())
		r.drained()
	}
}

// TestDamagedSegment: a chunk that workers could not use is not offered to them,
// whoever damaged it.
func TestDamagedSegment(t *testing.T) {
	for name, damage := range map[string]func(ring, secret, chunk []byte){
		"id":       func(_, _, c []byte) { c[0] ^= 1 },
		"size":     func(_, _, c []byte) { c[7] = 0x7f },
		"metadata": func(_, _, c []byte) { c[12] = 0 },
		"document": func(_, _, c []byte) { c[len(c)-1-rows*rowBytes-40] ^= 0xff },
		"secret":   func(_, s, _ []byte) { s[0] ^= 1 },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{mode: mmcache.SHM})
			r.ask(1, "a")
			undo := r.scribble(damage)
			q := r.request(1, "a")
			_, err := r.Generate(r.ctx, q)
			require.ErrorIs(t, err, engine.ErrRefused)
			t.Log(err)
			undo()
			s, err := r.Generate(r.ctx, q)
			require.NoError(t, err)
			got, err := s.Collect()
			require.NoError(t, err)
			require.Equal(t, want(1, "a"), got[0])
			require.NoError(t, r.e.Fatal())
			r.drained()
		})
	}
}
