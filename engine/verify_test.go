package engine_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/engine"
	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/serde"
)

// refusal is a change that makes a request wrong, and how it is refused: what is wrong,
// and a part of the text.
type refusal struct {
	what, text string
	change     func(q *engine.Request)
}

// requireRefused requires that a request was refused for what is wrong with it.
func requireRefused(t *testing.T, err error, what, text string) {
	t.Helper()
	require.ErrorIs(t, err, engine.ErrRefused)
	_, why, found := strings.Cut(err.Error(), " was not sent: "+what+": ")
	require.True(t, found, "%v: not for %s", err, what)
	require.Contains(t, why, text)
}

// TestRefused: what would harm the engine is never sent. Nothing reaches the
// engine, the items are as they were, and the right request passes.
func TestRefused(t *testing.T) {
	type change = func(q *engine.Request)
	param := func(name string, v any) change { return func(q *engine.Request) { q.Params[name] = v } }
	place := func(f func(p *engine.Placeholder)) change {
		return func(q *engine.Request) { f(&q.Placeholders[1]) }
	}
	vocabulary := uint32(256)
	cases := map[string]refusal{
		"empty prompt":        {"prompt", "it is empty", func(q *engine.Request) { q.Prompt, q.Placeholders, q.Items = nil, nil, nil }},
		"token":               {"prompt", "token 0 is 256, and the vocabulary has 256", func(q *engine.Request) { q.Prompt[0] = vocabulary }},
		"large token":         {"prompt", "token 0 is 4294967295", func(q *engine.Request) { q.Prompt[0] = math.MaxUint32 }},
		"long prompt":         {"prompt", "max_model_len is 4194304", func(q *engine.Request) { q.Prompt = append(q.Prompt, make([]uint32, 1<<22)...) }},
		"eos":                 {"EOS", "it is 256, and the vocabulary has 256", func(q *engine.Request) { q.EOS = &vocabulary }},
		"wrong type":          {"parameters", `parameter "max_tokens": it is "eight"`, param("max_tokens", "eight")},
		"wrong float":         {"parameters", `parameter "temperature": it is "hot"`, param("temperature", "hot")},
		"nan":                 {"parameters", `parameter "temperature": it is the float64 NaN`, param("temperature", math.NaN())},
		"negative":            {"parameters", `parameter "temperature": it is the float64 -1`, param("temperature", -1.0)},
		"top_p":               {"parameters", `parameter "top_p": it is the float64 1.5`, param("top_p", 1.5)},
		"max_tokens":          {"parameters", `parameter "max_tokens": it is the int64 0`, param("max_tokens", 0)},
		"unknown":             {"parameters", `parameter "temprature": vLLM 0.33.0 has none of that name`, param("temprature", 1.0)},
		"nested":              {"parameters", `parameter "stop_token_ids": element 0: it is "x"`, param("stop_token_ids", []any{"x"})},
		"stop token":          {"parameter stop_token_ids", "token 256 is outside", param("stop_token_ids", []int{1, 256})},
		"negative stop token": {"parameters", `parameter "stop_token_ids": element 0: it is the int64 -1`, param("stop_token_ids", []int{-1})},
		"allowed token":       {"parameter allowed_token_ids", "token 1000 is outside", param("allowed_token_ids", []uint32{1000})},
		"biased token":        {"parameter logit_bias", "token 300 is outside", param("logit_bias", map[int]float64{300: 1})},
		"stop text":           {"parameter stop", "it is text", param("stop", []string{"."})},
		"one stop text":       {"parameter stop", "it is text", param("stop", ".")},
		"bad words":           {"parameter bad_words", "it is text", param("bad_words", []string{"x"})},
		"logprobs":            {"parameter logprobs", "it is 257, and the most is 20", param("logprobs", 257)},
		"traced token":        {"parameter trace_decode_token_ids", "token 256 is outside", param("trace_decode_token_ids", []int{256})},
		"no n":                {"parameters", `parameter "n": it is the int64 0`, param("n", 0)},
		"large n":             {"parameters", `parameter "n": it is the int64 1099511627776`, param("n", 1<<40)},
		"half n":              {"parameters", `parameter "n": it is the float64 1.5`, param("n", 1.5)},
		"not utf-8":           {"message", "is not UTF-8", func(q *engine.Request) { q.ID = "\xff" }},

		"no placeholders": {"placeholders", "there are 0", func(q *engine.Request) { q.Placeholders = nil }},
		"one placeholder": {"prompt", "token 9 is 4, which stands for an item", func(q *engine.Request) { q.Placeholders = q.Placeholders[:1] }},
		"no items":        {"placeholders", "there are 2", func(q *engine.Request) { q.Items = nil }},
		"modality":        {"placeholder 1", `Model.Modalities has no "audio"`, place(func(p *engine.Placeholder) { p.Modality = "audio" })},
		"short":           {"prompt", "token 14 is 4, which stands for an item", place(func(p *engine.Placeholder) { p.Length-- })},
		"long":            {"placeholder 1", "token 15 of the prompt is 31", place(func(p *engine.Placeholder) { p.Length++ })},
		"none":            {"placeholder 1", "its range 9+0 is not in the prompt", place(func(p *engine.Placeholder) { p.Length = 0 })},
		"beyond":          {"placeholder 1", "its range 100+6 is not in the prompt", place(func(p *engine.Placeholder) { p.Offset = 100 })},
		"overflow":        {"placeholder 1", "its range 5+9223372036854775807 is not in the prompt", place(func(p *engine.Placeholder) { p.Offset, p.Length = 5, math.MaxInt })},
		"before":          {"placeholder 1", "its range -1+6 is not in the prompt", place(func(p *engine.Placeholder) { p.Offset = -1 })},
		"shifted":         {"placeholder 1", "token 15 of the prompt is 31", place(func(p *engine.Placeholder) { p.Offset++ })},
		"overlap":         {"placeholder 1", "its range 5+6 begins before 8", place(func(p *engine.Placeholder) { p.Offset = 5 })},
		"order":           {"placeholder 1", "its range 2+6 begins before 15", func(q *engine.Request) { p := q.Placeholders; p[0], p[1] = p[1], p[0] }},
		"other token":     {"placeholder 1", "token 11 of the prompt is 9", func(q *engine.Request) { q.Prompt[q.Placeholders[1].Offset+2] = 9 }},
		"mask length":     {"placeholder 1", "IsEmbed has 1 entries for 6 tokens", place(func(p *engine.Placeholder) { p.IsEmbed = []bool{true} })},
		"mask count":      {`item 1, key "b"`, "it takes 6 tokens, and its placeholder has 5", place(func(p *engine.Placeholder) { p.IsEmbed = []bool{true, true, true, true, true, false} })},
		"too many": {"placeholder 2", "token 15 of the prompt is 31", func(q *engine.Request) {
			q.Placeholders = append(q.Placeholders, engine.Placeholder{Offset: 15, Length: 1})
		}},
		"two of the place": {"placeholder 1", "its range 2+6 begins before 8", func(q *engine.Request) { q.Placeholders[1] = q.Placeholders[0] }},
	}
	for _, m := range []string{"lru", "shm"} {
		r := newRig(t, setup{mode: m})
		r.ask(1, "b") // which is omitted, in mode lru
		for name, c := range cases {
			t.Run(fmt.Sprintf("%s/%s", m, name), func(t *testing.T) {
				sent := len(r.e.Requests())
				q := r.request(2, "a"+name, "b")
				items := q.Items
				good := q
				good.Prompt = append([]uint32{}, q.Prompt...)
				good.Placeholders = append([]engine.Placeholder{}, q.Placeholders...)
				good.Params = map[string]any{"max_tokens": 2}
				c.change(&q)
				_, err := r.Generate(r.ctx, q)
				requireRefused(t, err, c.what, c.text)
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
	elem := func(key string, d any) *serde.Item {
		return &serde.Item{Modality: "image", Elems: []serde.Elem{{Key: key, Data: d}}}
	}
	flat := elem("pixels", tensor("uint8", rows, rowBytes))
	flat.Elems[0].Field = serde.FlatFromSizes(rows)
	more := elem("pixels", tensor("uint8", rows, rowBytes))
	more.Elems = append(more.Elems, serde.Elem{Key: "more", Data: int64(1)})
	cases := map[string]struct {
		text string
		item *serde.Item
	}{
		"dtype":          {"is of float32, not uint8", elem("pixels", tensor("float32", rows, rowBytes))},
		"rows":           {"it takes 5 tokens, and its placeholder has 6", elem("pixels", tensor("uint8", rows-1, rowBytes))},
		"width":          {"has the shape [6 101], not [-1 100]", elem("pixels", tensor("uint8", rows, rowBytes+1))},
		"dims":           {"has the shape [6 100 1], not [-1 100]", elem("pixels", tensor("uint8", rows, rowBytes, 1))},
		"name":           {`it has no elem "pixels"`, elem("pixel", tensor("uint8", rows, rowBytes))},
		"kind":           {"is int64, not a tensor", elem("pixels", int64(7))},
		"field":          {"is flat, not batched", flat},
		"more":           {"it has 2 elems, not 1", more},
		"forged address": {`it has no elem "pixels"`, serde.NewAddressItem(serde.Address{Address: 0, ID: 0, Signature: serde.Signature{1}}, "image")},
	}
	for _, m := range modes {
		r := newRig(t, setup{mode: m})
		for name, c := range cases {
			t.Run(m+"/"+name, func(t *testing.T) {
				q := r.request(1, "good")
				require.NotNil(t, q.Items)
				q.Items.Rollback()
				items, err := r.cache.Begin(r.ctx, "x", mmcache.Want{Key: name, Modality: "image"})
				require.NoError(t, err)
				_, err = items.Item(r.ctx, name, mmcache.Ready(c.item, nil))
				require.NoError(t, err)
				q.Items = items
				_, err = r.Generate(r.ctx, q)
				requireRefused(t, err, fmt.Sprintf("item 0, key %q", name), c.text)
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
	for name, c := range map[string]struct {
		text   string
		damage func(ring, secret, chunk []byte)
	}{
		"id":       {"stale", func(_, _, c []byte) { c[0] ^= 1 }},
		"size":     {"size", func(_, _, c []byte) { c[7] = 0x7f }},
		"metadata": {"pickle", func(_, _, c []byte) { c[12] = 0 }},
		"document": {`"pixels"`, func(_, _, c []byte) { c[len(c)-1-rows*rowBytes-40] ^= 0xff }},
		"secret":   {"signature", func(_, s, _ []byte) { s[0] ^= 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{mode: "shm"})
			r.ask(1, "a")
			undo := r.scribble(c.damage)
			q := r.request(1, "a")
			_, err := r.Generate(r.ctx, q)
			requireRefused(t, err, `item 0, key "a"`, c.text)
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

// scribble damages the segment as another process could, and returns what undoes
// it. There is one chunk.
func (r *rig) scribble(damage func(ring, secret, chunk []byte)) (undo func()) {
	r.t.Helper()
	f, err := os.OpenFile(filepath.Join(r.o.Dir, r.o.Segment), os.O_RDWR, 0)
	require.NoError(r.t, err)
	defer f.Close()
	before, err := io.ReadAll(f)
	require.NoError(r.t, err)
	b := append([]byte{}, before...)
	secret, ring := b[:32], b[32:]
	at := 0
	for binary.LittleEndian.Uint32(ring[at+4:]) == 0 {
		at += 32
	}
	damage(ring, secret, ring[at:at+int(binary.LittleEndian.Uint32(ring[at+4:]))])
	write := func(b []byte) {
		f, err := os.OpenFile(filepath.Join(r.o.Dir, r.o.Segment), os.O_RDWR, 0)
		require.NoError(r.t, err)
		defer f.Close()
		_, err = f.WriteAt(b, 0)
		require.NoError(r.t, err)
	}
	write(b)
	return func() { write(before) }
}
