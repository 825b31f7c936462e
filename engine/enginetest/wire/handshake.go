package wire

import (
	"maps"
	"slices"

	"github.com/ringcache/ringcache/internal/codec"
	"github.com/ringcache/ringcache/internal/pyvalue"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/serde/enginecore"
)

// EncodeHandshake returns a message of the handshake socket. The error wraps
// [fs.ErrInvalid].
func EncodeHandshake(h *enginecore.Handshake) ([]byte, error) {
	if h == nil {
		return nil, codec.Invalid("handshake", "it is a nil *Handshake")
	}
	m := &serde.Map{Keys: []any{"status", "local", "headless"}, Values: []any{h.Status, h.Local, h.Headless}}
	add := func(name string, v any) { m.Keys, m.Values = append(m.Keys, name), append(m.Values, v) }
	if h.NumGPUBlocks != nil {
		add("num_gpu_blocks", *h.NumGPUBlocks)
	}
	switch {
	case h.DPStatsAddress != nil:
		add("dp_stats_address", *h.DPStatsAddress)
	case h.NumGPUBlocks != nil: // where there is the one there is the other, also as None
		add("dp_stats_address", nil)
	}
	if h.ParallelConfigHash != nil {
		add("parallel_config_hash", *h.ParallelConfigHash)
	}
	for _, k := range slices.Sorted(maps.Keys(h.Rest)) {
		add(k, h.Rest[k])
	}
	return encodeMap("handshake", m)
}

func encodeMap(what string, m *serde.Map) ([]byte, error) {
	e := codec.NewEncoder(codec.DefaultThreshold)
	pyvalue.Write(e, what, m)
	return e.Document()
}

// EncodeReady returns the message with all fields of the generation, which are
// None unless Rest or the other fields of r have them. A generation that sends
// no map gives no bytes. The error wraps [fs.ErrInvalid]; an entry of Rest that the
// generation does not have is one.
func (c *Codec) EncodeReady(r *enginecore.Ready) ([]byte, error) {
	if r == nil {
		return nil, codec.Invalid("ready message", "it is a nil *Ready")
	}
	for _, name := range slices.Sorted(maps.Keys(r.Rest)) {
		if !slices.Contains(c.gen.ReadyFields, name) {
			return nil, codec.Invalid("field "+name, "the ready message of vLLM %s has none; leave it out",
				c.gen.Version)
		}
	}
	if len(c.gen.ReadyFields) == 0 {
		return []byte{}, nil
	}
	m := &serde.Map{}
	for _, name := range c.gen.ReadyFields {
		v, given := r.Rest[name]
		if field, known := readyFields[name]; known && !given {
			v = field(r)
		}
		m.Keys, m.Values = append(m.Keys, name), append(m.Values, v)
	}
	return encodeMap("ready message", m)
}

// readyFields has the fields of Ready by their names on the wire.
var readyFields = map[string]func(*enginecore.Ready) any{
	"vllm_version":           func(r *enginecore.Ready) any { return r.VLLMVersion },
	"dtype":                  func(r *enginecore.Ready) any { return r.DType },
	"instance_id":            func(r *enginecore.Ready) any { return r.InstanceID },
	"max_model_len":          func(r *enginecore.Ready) any { return r.MaxModelLen },
	"num_gpu_blocks":         func(r *enginecore.Ready) any { return r.NumGPUBlocks },
	"block_size":             func(r *enginecore.Ready) any { return r.BlockSize },
	"world_size":             func(r *enginecore.Ready) any { return r.WorldSize },
	"data_parallel_size":     func(r *enginecore.Ready) any { return r.DataParallelSize },
	"data_parallel_rank":     func(r *enginecore.Ready) any { return r.DataParallelRank },
	"tensor_parallel_size":   func(r *enginecore.Ready) any { return r.TensorParallelSize },
	"pipeline_parallel_size": func(r *enginecore.Ready) any { return r.PipelineParallelSize },
	"max_num_seqs":           func(r *enginecore.Ready) any { return r.MaxNumSeqs },
	"max_num_batched_tokens": func(r *enginecore.Ready) any { return r.MaxNumBatchedTokens },
}

// DecodeInit reads the frontend's answer to HELLO. The error wraps [serde.ErrCorrupt] or
// [serde.ErrUnsupported].
func DecodeInit(b []byte) (*enginecore.Init, error) {
	i, err := codec.Decode([][]byte{b},
		func(d *codec.Decoder) (enginecore.Init, error) { return readInit(d, "init message") })
	if err != nil {
		return nil, err
	}
	return &i, nil
}

var readInit = codec.Fields[*codec.Decoder, enginecore.Init]{
	"addresses": func(d *codec.Decoder, i *enginecore.Init, name string) error {
		return addressFields.Into(d, i, name, "inputs", "outputs")
	},
	"parallel_config":      codec.Value(func(i *enginecore.Init) *map[string]any { return &i.ParallelConfig }, pyvalue.ReadMap),
	"parallel_config_hash": codec.Optional(func(i *enginecore.Init) **string { return &i.ParallelConfigHash }, (*codec.Decoder).Text),
}.Object("addresses", "parallel_config")

var addressFields = codec.Fields[*codec.Decoder, enginecore.Init]{
	"inputs":             codec.Value(func(i *enginecore.Init) *[]string { return &i.Inputs }, (*codec.Decoder).Texts),
	"outputs":            codec.Value(func(i *enginecore.Init) *[]string { return &i.Outputs }, (*codec.Decoder).Texts),
	"coordinator_input":  codec.Optional(func(i *enginecore.Init) **string { return &i.CoordinatorInput }, (*codec.Decoder).Text),
	"coordinator_output": codec.Optional(func(i *enginecore.Init) **string { return &i.CoordinatorOutput }, (*codec.Decoder).Text),
	"frontend_stats_publish_address": codec.Optional(
		func(i *enginecore.Init) **string { return &i.FrontendStatsPublishAddress }, (*codec.Decoder).Text),
}
