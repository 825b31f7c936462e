package agent

import (
	"encoding/hex"
	"encoding/json"
	"errors"
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
		Item       rawJSON `json:"data"`
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
	r := &enginecore.Request{}
	err := copySame(r, j)
	if err != nil {
		p.fail("%w", err)
	}
	if r.Params, err = j.params(c); err != nil {
		panic(refusal{err})
	}
	for i := range j.Features {
		r.Features[i].Data = j.Features[i].item(p)
	}
	return r
}

// params parses the parameters of either kind.
func (j *requestJSON) params(c *enginecore.Codec) (*enginecore.Params, error) {
	sampling, pooling := plainMap(j.SamplingParams), plainMap(j.PoolingParams)
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

// item is the item of a feature, or nil for null.
func (j *featureJSON) item(p *params) *serde.Item {
	if c := firstByte(j.Item); c == 0 || c == 'n' {
		return nil
	}
	var v valueJSON
	if err := unmarshal(j.Item, &v); err != nil {
		p.fail("the data of a feature: %w", err)
	}
	if v.Type != "item" {
		p.fail("the data of a feature: want a value of type item, or null")
	}
	it, _ := valueDecoder{p, false}.item(v).(*serde.Item)
	return it
}

func encodeRequest(r *wire.Request) (*requestJSON, error) {
	j := &requestJSON{}
	if err := errors.Join(copySame(j, r), copySame(j, &r.Request)); err != nil {
		return nil, err
	}
	for i, f := range r.Features {
		if f.Data == nil {
			continue
		}
		raw, err := json.Marshal(encodeValue(f.Data))
		if err != nil {
			return nil, fmt.Errorf("the data of a feature: %w", err)
		}
		j.Features[i].Item = raw
	}
	return j, nil
}
