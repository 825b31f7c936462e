package agent

import (
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/ringcache/ringcache/engine/enginetest/wire"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/serde/enginecore"
)

func requestOps() map[string]operation {
	return map[string]operation{
		"request.encode": {"request generation treat_as threshold", requestEncode},
		"request.decode": {"frames generation treat_as", requestDecode},
		"request.fields": {"generation treat_as", listRequestFields},
		"outputs.encode": {"outputs generation treat_as threshold", outputsEncode},
		"outputs.decode": {"frames generation treat_as", outputsDecode},
	}
}

// The JSON form of a request, in both directions; the names are vLLM's.
type (
	requestJSON struct {
		RequestID             string            `json:"request_id"`
		PromptTokenIDs        []uint32          `json:"prompt_token_ids"`
		Features              []featureJSON     `json:"mm_features"`
		SamplingParams        map[string]plain  `json:"sampling_params"`
		PoolingParams         map[string]plain  `json:"pooling_params"`
		EOSTokenID            *uint32           `json:"eos_token_id"`
		ArrivalTime           number            `json:"arrival_time"`
		LoRA                  *loraJSON         `json:"lora_request"`
		CacheSalt             *string           `json:"cache_salt"`
		DataParallelRank      *int              `json:"data_parallel_rank"`
		PromptEmbeds          plain             `json:"prompt_embeds"`
		PromptIsTokenIDs      []bool            `json:"prompt_is_token_ids"`
		ClientIndex           int               `json:"client_index"`
		CurrentWave           int               `json:"current_wave"`
		Priority              int               `json:"priority"`
		TraceHeaders          map[string]string `json:"trace_headers"`
		Resumable             bool              `json:"resumable"`
		ExternalReqID         *string           `json:"external_req_id"`
		ReasoningEnded        *bool             `json:"reasoning_ended"`
		ReasoningParserKwargs map[string]plain  `json:"reasoning_parser_kwargs"`
		AbortImmediately      bool              `json:"abort_immediately"`
		SessionID             *string           `json:"session_id"`
		KVHints               *kvHintsJSON      `json:"kv_hints"`
	}
	featureJSON struct {
		Data       rawJSON `json:"data"`
		Modality   string  `json:"modality"`
		Identifier string  `json:"identifier"`
		Offset     int     `json:"offset"`
		Length     int     `json:"length"`
		IsEmbed    plain   `json:"is_embed"`
		MMHash     *string `json:"mm_hash"`
	}
	loraJSON struct {
		Name          string  `json:"lora_name"`
		ID            int     `json:"lora_int_id"`
		Path          string  `json:"lora_path"`
		BaseModelName *string `json:"base_model_name"`
		LoadInPlace   bool    `json:"load_inplace"`
		Is3DWeight    bool    `json:"is_3d_lora_weight"`
	}
	kvHintsJSON struct {
		ProtocolVersion string         `json:"protocol_version"`
		MessageID       string         `json:"message_id"`
		Actions         []kvActionJSON `json:"actions"`
	}
	kvActionJSON struct {
		ID      string           `json:"action_id"`
		Type    string           `json:"action_type"`
		Version string           `json:"action_version"`
		Payload map[string]plain `json:"payload"`
	}
)

// strictly decodes a field that must be there and have no name that into has not.
func strictly(p *params, name string, into any) {
	if err := unmarshal(required[rawJSON](p, name), into); err != nil {
		p.fail("field %q: %w", name, err)
	}
}

// frames is the field of that name.
func (p *params) frames() [][]byte {
	var out [][]byte
	for _, b := range required[[]hexBytes](p, "frames") {
		out = append(out, b)
	}
	return out
}

func hexFrames(f [][]byte) reply {
	out := make([]string, len(f))
	for i, b := range f {
		out[i] = hex.EncodeToString(b)
	}
	return reply{"frames": out}
}

func requestEncode(p *params) (reply, error) {
	c := p.codec(p.threshold())
	var j requestJSON
	strictly(p, "request", &j)
	r := j.request(p, c)
	m, err := c.EncodeRequest(r)
	if err != nil {
		return nil, err
	}
	return hexFrames(m.Frames()[1:]), nil // without the type
}

func requestDecode(p *params) (reply, error) {
	c := p.engineCodec(0)
	f := p.frames()
	m, err := c.Decode(append([][]byte{{0}}, f...)) // its type is that of a request
	if err != nil {
		return nil, err
	}
	j, err := encodeRequest(m.(*wire.Request))
	return reply{"request": j}, err
}

// listRequestFields returns what the table contains about a generation.
func listRequestFields(p *params) (reply, error) {
	g := p.generation()
	return reply{
		"request": g.RequestFields, "output": g.OutputFields, "outputs": g.OutputsFields, "ready": g.ReadyFields,
		"sampling": g.Params.Sampling, "pooling": g.Params.Pooling, "pooling_tasks": g.Params.PoolingTasks,
		"lora": g.Params.LoRA,
	}, nil
}

// codec encodes for engines of the generation of a call, and decodes their answers.
func (p *params) codec(threshold int) *enginecore.Codec {
	c, err := enginecore.New(enginecore.Options{Generation: p.generation(), InlineThreshold: threshold})
	if err != nil {
		p.fail("%w", err)
	}
	return c
}

// engineCodec is codec for the engine's half.
func (p *params) engineCodec(threshold int) *wire.Codec {
	c, err := wire.New(serde.Options{Generation: p.generation(), InlineThreshold: threshold})
	if err != nil {
		p.fail("%w", err)
	}
	return c
}

func (j *requestJSON) request(p *params, c *enginecore.Codec) *enginecore.Request {
	r := &enginecore.Request{
		RequestID: j.RequestID, PromptTokenIDs: j.PromptTokenIDs, EOSTokenID: j.EOSTokenID, ArrivalTime: float64(j.ArrivalTime), CacheSalt: j.CacheSalt,
		DataParallelRank: j.DataParallelRank, PromptIsTokenIDs: j.PromptIsTokenIDs, ClientIndex: j.ClientIndex, CurrentWave: j.CurrentWave,
		Priority: j.Priority, TraceHeaders: j.TraceHeaders, Resumable: j.Resumable, ExternalReqID: j.ExternalReqID, ReasoningEnded: j.ReasoningEnded,
		ReasoningParserKwargs: plainMap[map[string]any](j.ReasoningParserKwargs), AbortImmediately: j.AbortImmediately, SessionID: j.SessionID,
	}
	var err error
	if r.Params, err = j.params(c); err != nil {
		panic(refusal{err})
	}
	if r.PromptEmbeds, err = tensorOf(j.PromptEmbeds, "prompt_embeds"); err != nil {
		p.fail("%w", err)
	}
	if j.Features != nil {
		r.Features = []enginecore.Feature{}
	}
	for _, f := range j.Features {
		r.Features = append(r.Features, f.feature(p))
	}
	if l := j.LoRA; l != nil {
		r.LoRA = &enginecore.LoRA{Name: l.Name, ID: l.ID, Path: l.Path, BaseModelName: l.BaseModelName, LoadInPlace: l.LoadInPlace, Is3DWeight: l.Is3DWeight}
	}
	if h := j.KVHints; h != nil {
		r.KVHints = &enginecore.KVHints{ProtocolVersion: h.ProtocolVersion, MessageID: h.MessageID}
		for _, a := range h.Actions {
			r.KVHints.Actions = append(r.KVHints.Actions,
				enginecore.KVHintAction{ID: a.ID, Type: a.Type, Version: a.Version, Payload: plainMap[map[string]any](a.Payload)})
		}
	}
	return r
}

// params parses the parameters of either kind.
func (j *requestJSON) params(c *enginecore.Codec) (*enginecore.Params, error) {
	sampling, pooling := plainMap[map[string]any](j.SamplingParams), plainMap[map[string]any](j.PoolingParams)
	switch {
	case sampling != nil && pooling != nil:
		return nil, invalidf("field pooling_params: it and sampling_params are both set; set one")
	case sampling != nil:
		return c.ParseSampling(sampling)
	case pooling != nil:
		return c.ParsePooling(pooling)
	}
	return nil, nil
}

func (j *featureJSON) feature(p *params) enginecore.Feature {
	f := enginecore.Feature{Modality: j.Modality, Identifier: j.Identifier, Offset: j.Offset, Length: j.Length, MMHash: j.MMHash}
	var err error
	if f.IsEmbed, err = tensorOf(j.IsEmbed, "is_embed"); err != nil {
		p.fail("%w", err)
	}
	if c := firstByte(j.Data); c == 0 || c == 'n' {
		return f
	}
	var v valueJSON
	if err := unmarshal(j.Data, &v); err != nil {
		p.fail("the data of a feature: %w", err)
	}
	if v.Type != "item" {
		p.fail("the data of a feature: want a value of type item, or null")
	}
	f.Data, _ = valueDecoder{p, false}.item(v).(*serde.Item)
	return f
}

func encodeRequest(r *wire.Request) (*requestJSON, error) {
	j := &requestJSON{
		RequestID: r.RequestID, PromptTokenIDs: r.PromptTokenIDs, SamplingParams: fromMap(r.SamplingParams), PoolingParams: fromMap(r.PoolingParams),
		EOSTokenID: r.EOSTokenID, ArrivalTime: number(r.ArrivalTime), CacheSalt: r.CacheSalt, DataParallelRank: r.DataParallelRank,
		PromptIsTokenIDs: r.PromptIsTokenIDs, ClientIndex: r.ClientIndex, CurrentWave: r.CurrentWave, Priority: r.Priority,
		TraceHeaders: r.TraceHeaders, Resumable: r.Resumable, ExternalReqID: r.ExternalReqID, ReasoningEnded: r.ReasoningEnded,
		ReasoningParserKwargs: fromMap(r.ReasoningParserKwargs), AbortImmediately: r.AbortImmediately, SessionID: r.SessionID,
	}
	if r.PromptEmbeds != nil {
		j.PromptEmbeds = plain{r.PromptEmbeds}
	}
	if r.Features != nil {
		j.Features = []featureJSON{}
	}
	for _, f := range r.Features {
		out := featureJSON{Modality: f.Modality, Identifier: f.Identifier, Offset: f.Offset, Length: f.Length, MMHash: f.MMHash}
		if f.IsEmbed != nil {
			out.IsEmbed = plain{f.IsEmbed}
		}
		if f.Data != nil {
			raw, err := json.Marshal(encodeValue(f.Data))
			if err != nil {
				return nil, fmt.Errorf("the data of a feature: %w", err)
			}
			out.Data = raw
		}
		j.Features = append(j.Features, out)
	}
	if l := r.LoRA; l != nil {
		j.LoRA = &loraJSON{l.Name, l.ID, l.Path, l.BaseModelName, l.LoadInPlace, l.Is3DWeight}
	}
	if h := r.KVHints; h != nil {
		j.KVHints = &kvHintsJSON{h.ProtocolVersion, h.MessageID, []kvActionJSON{}}
		for _, a := range h.Actions {
			j.KVHints.Actions = append(j.KVHints.Actions, kvActionJSON{a.ID, a.Type, a.Version, fromMap(a.Payload)})
		}
	}
	return j, nil
}
