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

// Every name of every release is in the codec's table.
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
	// Longer ones, also with tensors of unknown types.
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

// TestChildUnderTheSameID: the frames of a child do not depend on the id that the request
// was encoded under.
func TestChildUnderTheSameID(t *testing.T) {
	p := newest(t)
	for _, params := range []map[string]any{{}, {"seed": 5}, {"n": 1}, {"n": 3, "seed": 5}} {
		for i := range 2 {
			var frames [2][][]byte
			for k, id := range []string{"child", "another"} {
				m, err := p.EncodeRequest(&enginecore.Request{RequestID: id, PromptTokenIDs: []uint32{1, 2}, Params: p.sampling(t, params)})
				require.NoError(t, err)
				frames[k], err = m.Child(i, "child")
				require.NoError(t, err)
			}
			require.Equal(t, frames[1], frames[0], "%v %d", params, i)
		}
	}
}
