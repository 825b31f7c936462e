package serde

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/pycompat"
)

// Every name of every release is one that the codec knows.
func TestEveryFieldHasACodec(t *testing.T) {
	for _, g := range pycompat.Releases() {
		for _, name := range g.RequestFields {
			require.NotNil(t, requestTable[name].decode, "%s %s", g.Version, name)
		}
		for _, name := range g.OutputFields {
			require.NotNil(t, outputTable[name].decode, "%s %s", g.Version, name)
		}
		for _, name := range g.OutputsFields {
			require.NotNil(t, messageTable[name].decode, "%s %s", g.Version, name)
		}
		for _, name := range g.Params.Sampling {
			require.NotNil(t, samplingTable[name].form, "%s %s", g.Version, name)
		}
		for _, name := range g.Params.Pooling {
			require.NotNil(t, poolingTable[name].form, "%s %s", g.Version, name)
		}
		for name := range loraTable {
			require.True(t, slices.Contains(g.Params.LoRA, name) || name == "load_inplace" || name == "is_3d_lora_weight", "%s %s", g.Version, name)
		}
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
		m := &Map{Keys: []any{}, Values: []any{}}
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

func drawRequest(t *rapid.T, g *pycompat.Generation) *EngineCoreRequest {
	text := rapid.String()
	has := func(name string) bool { return slices.Contains(g.RequestFields, name) }
	r := &EngineCoreRequest{
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
		r.PromptEmbeds = &Tensor{DTypeFloat32, []int{n, 2}, seq(8*n, 3, 1)}
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
		f := Feature{
			Modality: text.Draw(t, "modality"), Identifier: text.Draw(t, "identifier"),
			Offset: rapid.IntRange(0, 1<<20).Draw(t, "offset"), Length: rapid.IntRange(0, 400).Draw(t, "length"),
		}
		if rapid.Bool().Draw(t, "data") {
			f.Data = drawItem(t, g.ItemForm)
		}
		if rapid.Bool().Draw(t, "mask") {
			f.IsEmbed = &Tensor{DTypeBool, []int{f.Length}, seq(f.Length, 0, 1)}
		}
		if g.FeatureHash {
			f.MMHash = drawSome(t, "hash", func() string { return text.Draw(t, "hash text") })
		}
		r.Features = append(r.Features, f)
	}
	if rapid.Bool().Draw(t, "pooling") {
		r.PoolingParams = Params{"task": "embed", "dimensions": rapid.Int64Range(1, 99).Draw(t, "dimensions"), "extra_kwargs": drawMap(t, 0)}
		r.EOSTokenID = nil
	} else {
		r.SamplingParams = Params{
			"temperature": rapid.Float64Range(0, 2).Draw(t, "temperature"), "max_tokens": rapid.Int64Range(1, 9).Draw(t, "max"),
			"ignore_eos": rapid.Bool().Draw(t, "ignore"), "extra_args": drawMap(t, 0),
		}
	}
	if rapid.Bool().Draw(t, "lora") {
		r.LoRA = &LoRA{
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
		r.KVHints = &KVHints{"1", text.Draw(t, "message"), []KVHintAction{{"i", "t", "v", drawMap(t, 0)}}}
	}
	return r
}

func TestPropertyRequests(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := drawOptions(t)
		want := drawRequest(t, o.Generation)
		f, err := EncodeRequest(want, o)
		require.NoError(t, err)
		got, err := DecodeRequest(f, o)
		require.NoError(t, err)
		again, err := EncodeRequest(got, o)
		require.NoError(t, err)
		require.Equal(t, f, again)

		// What stands for the token that ends the text has moved.
		if want.EOSTokenID != nil {
			require.Equal(t, []any{int64(*want.EOSTokenID)}, got.SamplingParams["_all_stop_token_ids"])
			delete(got.SamplingParams, "_all_stop_token_ids")
			if ignored := want.SamplingParams["ignore_eos"] == true; ignored && !slices.Contains(o.Generation.RequestFields, "eos_token_id") {
				require.Nil(t, got.EOSTokenID)
				got.EOSTokenID = want.EOSTokenID
			}
		}
		if want.PoolingParams != nil {
			for _, name := range []string{"output_kind", "requires_token_ids", "skip_reading_prefix_cache"} {
				delete(got.PoolingParams, name)
			}
		}
		require.Len(t, got.Features, len(want.Features))
		for i := range want.Features {
			w, g := want.Features[i], got.Features[i]
			require.Equal(t, w.Data == nil, g.Data == nil)
			if w.Data != nil {
				same(t, w.Data, g.Data)
			}
			w.Data, g.Data = nil, nil
			require.Equal(t, w, g)
		}
		want.Features, got.Features = nil, nil
		require.Equal(t, want, got)
	})
}

func TestEncodeRequestRefuses(t *testing.T) {
	old, err := pycompat.Lookup("0.13.0")
	require.NoError(t, err)
	base := func() *EngineCoreRequest {
		return &EngineCoreRequest{RequestID: "r", PromptTokenIDs: []uint32{1}, SamplingParams: Params{}}
	}
	_, err = EncodeRequest(base(), Options{Generation: old})
	require.NoError(t, err)
	for name, c := range map[string]struct {
		change func(*EngineCoreRequest)
		text   string
	}{
		"no params":     {func(r *EngineCoreRequest) { r.SamplingParams = nil }, "sampling_params"},
		"both params":   {func(r *EngineCoreRequest) { r.PoolingParams = Params{} }, "pooling_params"},
		"no task":       {func(r *EngineCoreRequest) { r.SamplingParams, r.PoolingParams = nil, Params{"dimensions": 1} }, `parameter "task"`},
		"no prompt":     {func(r *EngineCoreRequest) { r.PromptTokenIDs = nil }, "prompt_token_ids"},
		"empty prompt":  {func(r *EngineCoreRequest) { r.PromptTokenIDs = []uint32{} }, "prompt_token_ids"},
		"embeds of one": {func(r *EngineCoreRequest) { r.PromptEmbeds = &Tensor{DTypeBool, []int{1}, []byte{1}} }, "prompt_embeds"},
		"more embeds":   {func(r *EngineCoreRequest) { r.PromptEmbeds = &Tensor{DTypeBool, []int{2, 1}, []byte{1, 1}} }, "has 2 places"},
		"laid out only": {func(r *EngineCoreRequest) { r.PromptEmbeds = &Tensor{DTypeBool, []int{1, 1}, nil} }, "no Data"},
		"choice of one": {func(r *EngineCoreRequest) { r.PromptIsTokenIDs = []bool{true} }, "prompt_is_token_ids"},
		"client":        {func(r *EngineCoreRequest) { r.ClientIndex = -1 }, "client_index"},
		"rank":          {func(r *EngineCoreRequest) { r.DataParallelRank = ptr(-1) }, "data_parallel_rank"},
		"lora id":       {func(r *EngineCoreRequest) { r.LoRA = &LoRA{Path: "p"} }, "at least 1"},
		"lora path":     {func(r *EngineCoreRequest) { r.LoRA = &LoRA{ID: 1} }, "no Path"},
		"lora in place": {func(r *EngineCoreRequest) { r.LoRA = &LoRA{ID: 1, Path: "p", LoadInPlace: true} }, "0.13.0 has no LoadInPlace"},
		"text":          {func(r *EngineCoreRequest) { r.RequestID = "\xff" }, "UTF-8"},
		"external id":   {func(r *EngineCoreRequest) { r.ExternalReqID = ptr("") }, "field external_req_id: vLLM 0.13.0 has none"},
		"resumable":     {func(r *EngineCoreRequest) { r.Resumable = true }, "field resumable: vLLM 0.13.0 has none"},
		"reasoning":     {func(r *EngineCoreRequest) { r.ReasoningEnded = ptr(false) }, "field reasoning_ended"},
		"parser":        {func(r *EngineCoreRequest) { r.ReasoningParserKwargs = map[string]any{} }, "field reasoning_parser_kwargs"},
		"abort":         {func(r *EngineCoreRequest) { r.AbortImmediately = true }, "field abort_immediately"},
		"session":       {func(r *EngineCoreRequest) { r.SessionID = ptr("") }, "field session_id"},
		"hints":         {func(r *EngineCoreRequest) { r.KVHints = &KVHints{} }, "field kv_hints"},
		"bad parameter": {func(r *EngineCoreRequest) { r.SamplingParams["top_p"] = 0 }, `parameter "top_p"`},
		"eos twice":     {func(r *EngineCoreRequest) { r.EOSTokenID = ptr(uint32(1)); r.SamplingParams["_eos_token_id"] = 2 }, `parameter "_eos_token_id"`},
		"mask": {func(r *EngineCoreRequest) {
			r.Features = []Feature{{Length: 2, IsEmbed: &Tensor{DTypeBool, []int{1}, []byte{1}}}}
		}, "each of 2 tokens"},
		"negative offset": {func(r *EngineCoreRequest) { r.Features = []Feature{{Offset: -1}} }, "range"},
	} {
		r := base()
		c.change(r)
		_, err := EncodeRequest(r, Options{Generation: old})
		require.ErrorIs(t, err, ErrInvalid, name)
		require.ErrorContains(t, err, c.text, name)
	}
	_, err = EncodeRequest(nil, Options{})
	require.ErrorIs(t, err, ErrInvalid)
}

func TestDecodeRequestLengths(t *testing.T) {
	g := pycompat.Newest()
	f, err := EncodeRequest(&EngineCoreRequest{RequestID: "r", PromptTokenIDs: []uint32{1}, SamplingParams: Params{}}, Options{})
	require.NoError(t, err)
	full := f[0]
	require.Equal(t, []byte{0xdc, 0, byte(len(g.RequestFields))}, full[:3])

	// As many as Python has no defaults for; the rest is one byte each.
	least := slices.Index(g.RequestFields, "prompt_embeds")
	for n := range len(g.RequestFields) {
		doc := append([]byte{0xdc, 0, byte(n)}, full[3:len(full)-(len(g.RequestFields)-max(n, least))]...)
		if n < least {
			_, err := DecodeRequest(Frames{doc}, Options{})
			require.ErrorIs(t, err, ErrCorrupt)
			continue
		}
		r, err := DecodeRequest(Frames{doc}, Options{})
		require.NoError(t, err, n)
		require.Equal(t, "r", r.RequestID)
	}
	// Longer ones, also with tensors that nobody knows.
	doc := append([]byte{0xdc, 0, full[2] + 2}, full[3:]...)
	doc = append(doc, "\x93\xa5uint8\x91\xcd\x01\x2c\x01\x81\xa1x\xc0"...)
	r, err := DecodeRequest(Frames{doc, make([]byte, 300)}, Options{})
	require.NoError(t, err)
	require.Equal(t, []uint32{1}, r.PromptTokenIDs)
	for _, doc := range []string{"", "\xc0", "\x81\xa1x\x01", "\x90", "\x91\xa1r", string(full) + "\xc0", string(full[:len(full)-1])} {
		_, err := DecodeRequest(Frames{[]byte(doc)}, Options{})
		require.ErrorIs(t, err, ErrCorrupt, "%q", doc)
	}
}
