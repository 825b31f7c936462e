package enginecore_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/internal/msgpackguard"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/serde/enginecore"
)

// Every name of every release is one that the codec knows.
func TestEveryFieldHasACodec(t *testing.T) {
	for _, g := range pycompat.Releases() {
		t.Run(g.Version, func(t *testing.T) {
			require.Subset(t, enginecore.RequestFieldNames(), g.RequestFields)
			require.Subset(t, enginecore.OutputsFieldNames(), g.OutputsFields)
			require.Subset(t, enginecore.OutputFieldNames(), g.OutputFields)
			require.Subset(t, enginecore.SamplingNames(), g.Params.Sampling)
			require.Subset(t, enginecore.PoolingNames(), g.Params.Pooling)
			for _, name := range enginecore.LoRANames() {
				require.True(t, slices.Contains(g.Params.LoRA, name) || name == "load_inplace" || name == "is_3d_lora_weight", name)
			}
		})
	}
}

func drawSome[T any](t *rapid.T, name string, draw func() T) *T {
	if rapid.Bool().Draw(t, name) {
		v := draw()
		return &v
	}
	return nil
}

func drawAny(t *rapid.T, depth int) any {
	switch rapid.IntRange(0, 8).Draw(t, "any") {
	case 0:
		return nil
	case 1:
		return rapid.Bool().Draw(t, "bool")
	case 2:
		return rapid.Int64().Draw(t, "int")
	case 3:
		return rapid.Uint64Min(1<<63).Draw(t, "uint")
	case 4:
		return rapid.Float64().Draw(t, "float")
	case 5:
		return rapid.String().Draw(t, "text")
	case 6:
		return rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "bytes")
	case 7:
		out := []any{}
		for range rapid.IntRange(0, 3-depth).Draw(t, "list") {
			out = append(out, drawAny(t, depth+1))
		}
		return out
	}
	if rapid.Bool().Draw(t, "ordered") {
		m := &serde.Map{Keys: []any{}, Values: []any{}}
		for i := range rapid.IntRange(1, 3).Draw(t, "entries") {
			m.Keys, m.Values = append(m.Keys, int64(i)), append(m.Values, drawLeaf(t))
		}
		return m
	}
	return drawMap(t, depth+1)
}

func drawLeaf(t *rapid.T) any { return rapid.Int64().Draw(t, "leaf") }

func drawMap(t *rapid.T, depth int) map[string]any {
	out := map[string]any{}
	for range rapid.IntRange(0, max(0, 3-depth)).Draw(t, "map") {
		out[rapid.String().Draw(t, "key")] = drawAny(t, depth+1)
	}
	return out
}

func drawRequest(t *rapid.T, p pair) *enginecore.Request {
	g := p.gen
	text := rapid.String()
	has := func(name string) bool { return slices.Contains(g.RequestFields, name) }
	r := &enginecore.Request{
		RequestID:      text.Draw(t, "id"),
		PromptTokenIDs: rapid.SliceOfN(rapid.Uint32(), 1, 300).Draw(t, "prompt"),
		EOSTokenID:     drawSome(t, "eos", func() uint32 { return rapid.Uint32Max(math.MaxInt32).Draw(t, "eos token") }),
		ArrivalTime:    rapid.Float64().Draw(t, "arrival"),
		CacheSalt:      drawSome(t, "salt", func() string { return text.Draw(t, "salt text") }),
		DataParallelRank: drawSome(t, "rank", func() int {
			return rapid.IntRange(0, 1000).Draw(t, "rank number")
		}),
		ClientIndex: rapid.IntRange(0, 300).Draw(t, "client"),
		CurrentWave: rapid.IntRange(0, 300).Draw(t, "wave"),
		Priority:    rapid.IntRange(-300, 300).Draw(t, "priority"),
	}
	n := len(r.PromptTokenIDs)
	if rapid.Bool().Draw(t, "embeds") {
		r.PromptEmbeds = &serde.Tensor{DType: "float32", Shape: []int{n, 2}, Data: seq(8*n, 3, 1)}
		switch rapid.IntRange(0, 2).Draw(t, "both") {
		case 0:
			r.PromptTokenIDs = nil
		case 1:
			if has("prompt_is_token_ids") {
				r.PromptIsTokenIDs = rapid.SliceOfN(rapid.Bool(), n, n).Draw(t, "which")
			}
		}
	}
	for range rapid.IntRange(0, 2).Draw(t, "features") {
		f := enginecore.Feature{
			Modality: text.Draw(t, "modality"), Identifier: text.Draw(t, "identifier"),
			Offset: rapid.IntRange(0, 1<<20).Draw(t, "offset"), Length: rapid.IntRange(0, 400).Draw(t, "length"),
		}
		if rapid.Bool().Draw(t, "data") {
			f.Data = drawItem(t, g.ItemForm)
		}
		if rapid.Bool().Draw(t, "mask") {
			f.IsEmbed = &serde.Tensor{DType: "bool", Shape: []int{f.Length}, Data: seq(f.Length, 0, 1)}
		}
		if g.FeatureHash {
			f.MMHash = drawSome(t, "hash", func() string { return text.Draw(t, "hash text") })
		}
		r.Features = append(r.Features, f)
	}
	if rapid.Bool().Draw(t, "pooling") {
		r.Params = p.pooling(t, map[string]any{"task": "embed", "dimensions": rapid.Int64Range(1, 99).Draw(t, "dimensions"), "extra_kwargs": drawMap(t, 0)})
		r.EOSTokenID = nil
	} else {
		r.Params = p.sampling(t, map[string]any{
			"temperature": rapid.Float64Range(0, 2).Draw(t, "temperature"), "max_tokens": rapid.Int64Range(1, 9).Draw(t, "max"),
			"ignore_eos": rapid.Bool().Draw(t, "ignore"), "extra_args": drawMap(t, 0),
		})
	}
	if rapid.Bool().Draw(t, "lora") {
		r.LoRA = &enginecore.LoRA{
			Name: text.Draw(t, "name"), ID: rapid.IntRange(1, 1000).Draw(t, "lora id"), Path: "/p", BaseModelName: drawSome(t, "base", func() string { return "b" }),
			LoadInPlace: slices.Contains(g.Params.LoRA, "load_inplace"), Is3DWeight: slices.Contains(g.Params.LoRA, "is_3d_lora_weight"),
		}
	}
	if rapid.Bool().Draw(t, "headers") {
		r.TraceHeaders = map[string]string{"a": text.Draw(t, "header"), "b": ""}
	}
	r.Resumable = has("resumable") && rapid.Bool().Draw(t, "resumable")
	r.AbortImmediately = has("abort_immediately") && rapid.Bool().Draw(t, "abort")
	if has("external_req_id") {
		r.ExternalReqID = drawSome(t, "external", func() string { return text.Draw(t, "external id") })
	}
	if has("reasoning_ended") {
		r.ReasoningEnded = drawSome(t, "reasoning", func() bool { return rapid.Bool().Draw(t, "ended") })
	}
	if has("reasoning_parser_kwargs") && rapid.Bool().Draw(t, "kwargs") {
		r.ReasoningParserKwargs = drawMap(t, 0)
	}
	if has("session_id") {
		r.SessionID = drawSome(t, "session", func() string { return text.Draw(t, "session id") })
	}
	if has("kv_hints") && rapid.Bool().Draw(t, "hints") {
		r.KVHints = &enginecore.KVHints{ProtocolVersion: "1", MessageID: text.Draw(t, "message"), Actions: []enginecore.KVHintAction{{ID: "i", Type: "t", Version: "v", Payload: drawMap(t, 0)}}}
	}
	return r
}

// drawItem is an item with tensors on both sides of the threshold, in nested lists too.
func drawItem(t *rapid.T, form pycompat.ItemForm) *serde.Item {
	tensor := func() *serde.Tensor {
		n := rapid.SampledFrom([]int{0, 3, 300}).Draw(t, "bytes")
		return &serde.Tensor{DType: "uint8", Shape: []int{n}, Data: seq(n, 3, 1)}
	}
	it := &serde.Item{Elems: []serde.Elem{
		{Key: "a", Data: tensor()},
		{Key: "b", Data: []any{tensor(), int64(1), []any{tensor()}}, Field: serde.FlatFromSizes(2, 1)},
	}}
	if form != pycompat.ItemMap {
		it.Modality = "image"
	}
	return it
}

func drawPair(t *rapid.T) pair {
	return newPair(t, rapid.SampledFrom(pycompat.Releases()).Draw(t, "vllm"),
		rapid.SampledFrom([]int{0, -1, 1, 8, 256, 1 << 20}).Draw(t, "threshold"))
}

func TestPropertyRequests(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPair(t)
		want := drawRequest(t, p)
		m, err := p.EncodeRequest(want)
		require.NoError(t, err)
		got, err := p.request(m.Frames()[1:]...)
		require.NoError(t, err)
		again, err := p.EncodeRequest(p.again(t, got))
		require.NoError(t, err)
		require.Equal(t, m.Frames(), again.Frames())

		// What stands for the token that ends the text has moved.
		if want.EOSTokenID != nil {
			require.Equal(t, []any{int64(*want.EOSTokenID)}, got.SamplingParams["_all_stop_token_ids"])
			if ignored := want.Params.Get("ignore_eos") == true; ignored && !slices.Contains(p.gen.RequestFields, "eos_token_id") {
				require.Nil(t, got.EOSTokenID)
				got.EOSTokenID = want.EOSTokenID
			}
		}
		for name, v := range got.SamplingParams {
			if name != "_all_stop_token_ids" {
				require.Equal(t, want.Params.Get(name), v, name)
			}
		}
		for name, v := range got.PoolingParams {
			if !slices.Contains([]string{"output_kind", "requires_token_ids", "skip_reading_prefix_cache"}, name) {
				require.Equal(t, want.Params.Get(name), v, name)
			}
		}
		require.Len(t, got.Features, len(want.Features))
		for i := range want.Features {
			w, g := want.Features[i], got.Features[i]
			require.Equal(t, w.Data == nil, g.Data == nil)
			if w.Data != nil {
				equalItem(t, w.Data, g.Data)
			}
			w.Data, g.Data = nil, nil
			require.Equal(t, w, g)
		}
		want.Features, got.Features, want.Params = nil, nil, nil
		require.Equal(t, *want, got.Request)
	})
}

// A child's message is that of its own request, byte for byte.
func TestPropertyChildren(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPair(t)
		r := drawRequest(t, p)
		n := rapid.IntRange(1, 3).Draw(t, "n")
		params := map[string]any{"temperature": 0.5, "max_tokens": 9}
		if rapid.Bool().Draw(t, "n is given") || n > 1 {
			params["n"] = n
		}
		seed := rapid.SampledFrom([]any{nil, int64(-1), int64(7), int64(127), int64(math.MaxInt64), uint64(1 << 63)}).Draw(t, "seed")
		params["seed"] = seed
		r.Params = p.sampling(t, params)
		m, err := p.EncodeRequest(r)
		require.NoError(t, err)
		for i := range n {
			id := rapid.String().Draw(t, "child's id")
			got, err := m.Child(i, id)
			require.NoError(t, err)

			own := *r
			own.RequestID = id
			delete(params, "n")
			switch s := seed.(type) {
			case int64:
				if n > 1 && s != -1 {
					params["seed"] = uint64(s) + uint64(i)
				}
			case uint64:
				if n > 1 {
					params["seed"] = s + uint64(i)
				}
			}
			own.Params = p.sampling(t, params)
			want, err := p.EncodeRequest(&own)
			require.NoError(t, err)
			require.Equal(t, want.Frames(), got)
		}
		_, err = m.Child(0, "\xff")
		invalid(t, err, "is not UTF-8")
	})
}

func TestEncodeRequestRefuses(t *testing.T) {
	old := release(t, "0.13.0")
	sampling := func(params map[string]any) *enginecore.Params { return old.sampling(t, params) }
	base := func() *enginecore.Request {
		return &enginecore.Request{RequestID: "r", PromptTokenIDs: []uint32{1}, Params: sampling(nil)}
	}
	_, err := old.EncodeRequest(base())
	require.NoError(t, err)
	for name, c := range map[string]struct {
		change func(*enginecore.Request)
		text   string
	}{
		"no params":     {func(r *enginecore.Request) { r.Params = nil }, "field sampling_params: it and pooling_params are both unset"},
		"other release": {func(r *enginecore.Request) { r.Params = newest(t).sampling(t, nil) }, "parsed for vLLM 0.33.0, and the request is for 0.13.0"},
		"no task":       {func(r *enginecore.Request) { r.Params = old.pooling(t, map[string]any{"dimensions": 1}) }, `parameter "task"`},
		"no prompt":     {func(r *enginecore.Request) { r.PromptTokenIDs = nil }, "prompt_token_ids"},
		"empty prompt":  {func(r *enginecore.Request) { r.PromptTokenIDs = []uint32{} }, "prompt_token_ids"},
		"embeds of one": {func(r *enginecore.Request) {
			r.PromptEmbeds = &serde.Tensor{DType: "bool", Shape: []int{1}, Data: []byte{1}}
		}, "prompt_embeds"},
		"more embeds": {func(r *enginecore.Request) {
			r.PromptEmbeds = &serde.Tensor{DType: "bool", Shape: []int{2, 1}, Data: []byte{1, 1}}
		}, "has 2 places"},
		"laid out only": {func(r *enginecore.Request) {
			r.PromptEmbeds = &serde.Tensor{DType: "bool", Shape: []int{1, 1}, Data: nil}
		}, "no Data"},
		"choice of one": {func(r *enginecore.Request) { r.PromptIsTokenIDs = []bool{true} }, "prompt_is_token_ids"},
		"client":        {func(r *enginecore.Request) { r.ClientIndex = -1 }, "client_index"},
		"rank":          {func(r *enginecore.Request) { r.DataParallelRank = ptr(-1) }, "data_parallel_rank"},
		"lora id":       {func(r *enginecore.Request) { r.LoRA = &enginecore.LoRA{Path: "p"} }, "at least 1"},
		"lora path":     {func(r *enginecore.Request) { r.LoRA = &enginecore.LoRA{ID: 1} }, "no Path"},
		"lora in place": {func(r *enginecore.Request) { r.LoRA = &enginecore.LoRA{ID: 1, Path: "p", LoadInPlace: true} }, "0.13.0 has no LoadInPlace"},
		"text":          {func(r *enginecore.Request) { r.RequestID = "\xff" }, "UTF-8"},
		"external id":   {func(r *enginecore.Request) { r.ExternalReqID = ptr("") }, "field external_req_id: vLLM 0.13.0 has none"},
		"resumable":     {func(r *enginecore.Request) { r.Resumable = true }, "field resumable: vLLM 0.13.0 has none"},
		"reasoning":     {func(r *enginecore.Request) { r.ReasoningEnded = ptr(false) }, "field reasoning_ended"},
		"parser":        {func(r *enginecore.Request) { r.ReasoningParserKwargs = map[string]any{} }, "field reasoning_parser_kwargs"},
		"abort":         {func(r *enginecore.Request) { r.AbortImmediately = true }, "field abort_immediately"},
		"session":       {func(r *enginecore.Request) { r.SessionID = ptr("") }, "field session_id"},
		"hints":         {func(r *enginecore.Request) { r.KVHints = &enginecore.KVHints{} }, "field kv_hints"},
		"eos too large": {func(r *enginecore.Request) { r.EOSTokenID = ptr(uint32(math.MaxUint32)) }, "field eos_token_id: it is 4294967295"},
		"eos twice": {func(r *enginecore.Request) {
			r.EOSTokenID = ptr(uint32(1))
			r.Params = newest(t).sampling(t, map[string]any{"_eos_token_id": 2})
		}, "parsed for"},
		"mask": {func(r *enginecore.Request) {
			r.Features = []enginecore.Feature{{Length: 2, IsEmbed: &serde.Tensor{DType: "bool", Shape: []int{1}, Data: []byte{1}}}}
		}, "each of 2 tokens"},
		"negative offset": {func(r *enginecore.Request) { r.Features = []enginecore.Feature{{Offset: -1}} }, "range"},
	} {
		t.Run(name, func(t *testing.T) {
			r := base()
			c.change(r)
			_, err := old.EncodeRequest(r)
			invalid(t, err, c.text)
		})
	}
	_, err = old.EncodeRequest(nil)
	invalid(t, err, "it is a nil *Request")
	c := newest(t)
	_, err = c.EncodeRequest(&enginecore.Request{PromptTokenIDs: []uint32{1}, EOSTokenID: ptr(uint32(1)), Params: c.sampling(t, map[string]any{"_eos_token_id": 2})})
	invalid(t, err, `parameter "_eos_token_id": it is 2, and EOSTokenID is 1`)
}

func TestDecodeRequestLengths(t *testing.T) {
	c := newest(t)
	g := c.gen
	m, err := c.EncodeRequest(&enginecore.Request{RequestID: "r", PromptTokenIDs: []uint32{1}, Params: c.sampling(t, nil)})
	require.NoError(t, err)
	full := m.Frames()[1]
	require.Equal(t, []byte{0xdc, 0, byte(len(g.RequestFields))}, full[:3])

	// As many as Python has no defaults for.
	least := slices.Index(g.RequestFields, "prompt_embeds")
	end := 3
	for n := range len(g.RequestFields) {
		doc := append([]byte{0xdc, 0, byte(n)}, full[3:end]...)
		end, err = msgpackguard.Next(full, end, msgpackguard.Limits{}) // of field n
		require.NoError(t, err)
		r, err := c.request(doc)
		if n < least {
			corrupt(t, err, fmt.Sprintf("got an array of %d, want the field %s", n, g.RequestFields[n]))
			continue
		}
		require.NoError(t, err, n)
		require.Equal(t, "r", r.RequestID)
	}
	// Longer ones, also with tensors that nobody knows.
	doc := append([]byte{0xdc, 0, full[2] + 2}, full[3:]...)
	doc = append(doc, "\x93\xa5uint8\x91\xcd\x01\x2c\x01\x81\xa1x\xc0"...)
	r, err := c.request(doc, make([]byte, 300))
	require.NoError(t, err)
	require.Equal(t, []uint32{1}, r.PromptTokenIDs)
	for doc, text := range map[string]string{
		"": "main document", "\xc0": "got nil, want an array", "\x81\xa1x\x01": "got a map, want an array", "\x90": "the field request_id",
		"\x91\xa1r": "the field prompt_token_ids", string(full) + "\xc0": "1 bytes follow the document", string(full[:len(full)-1]): "the document ends inside a value",
	} {
		_, err := c.request([]byte(doc))
		corrupt(t, err, text, "%q", doc)
	}
}
