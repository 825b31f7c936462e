package serde

import (
	"fmt"
	"slices"

	"github.com/ringcache/ringcache/pycompat"
)

// Ready is the first message that EngineCore sends on an input socket
// (EngineCoreReadyResponse in vllm/v1/engine/__init__.py): a map from 0.20.0
// on, empty before. What a release does not tell is zero:
// [pycompat.Generation].ReadyFields says what it tells. Until 0.22.1 that is
// MaxModelLen and NumGPUBlocks, from 0.22.0 on DType; 0.23.0 adds BlockSize and
// VLLMVersion, 0.24.0 WorldSize and DataParallelSize, 0.27.0 the others.
type Ready struct {
	VLLMVersion          string
	DType                string // of the model, such as "torch.bfloat16"
	InstanceID           string
	MaxModelLen          int // tokens
	NumGPUBlocks         int
	BlockSize            int // tokens of a block
	WorldSize            int // workers of this engine, the readers of a segment
	DataParallelSize     int
	DataParallelRank     int
	TensorParallelSize   int
	PipelineParallelSize int
	MaxNumSeqs           int // requests of one step
	MaxNumBatchedTokens  int // tokens of one step
	// Rest is whatever else there is, and what has another type than expected;
	// values as [DecodeOutputs] has them.
	Rest map[string]any
}

func (r *Ready) texts() map[string]*string {
	return map[string]*string{"vllm_version": &r.VLLMVersion, "dtype": &r.DType, "instance_id": &r.InstanceID}
}

func (r *Ready) ints() map[string]*int {
	return map[string]*int{
		"max_model_len": &r.MaxModelLen, "num_gpu_blocks": &r.NumGPUBlocks, "block_size": &r.BlockSize,
		"world_size": &r.WorldSize, "data_parallel_size": &r.DataParallelSize, "data_parallel_rank": &r.DataParallelRank,
		"tensor_parallel_size": &r.TensorParallelSize, "pipeline_parallel_size": &r.PipelineParallelSize,
		"max_num_seqs": &r.MaxNumSeqs, "max_num_batched_tokens": &r.MaxNumBatchedTokens,
	}
}

// EncodeReady returns the message with all fields of the generation, which are
// None unless Rest or the other fields of r have them. A generation that sends
// no map gives no bytes. The error wraps [ErrInvalid]; an entry of Rest that the
// generation does not have is one.
func EncodeReady(r *Ready, o Options) ([]byte, error) {
	if r == nil {
		return nil, &InvalidError{"ready message", "it is a nil *Ready"}
	}
	g, err := pycompat.Resolve(o.Generation)
	if err != nil {
		return nil, err
	}
	for _, name := range sortedKeys(r.Rest) {
		if !slices.Contains(g.ReadyFields, name) {
			return nil, &InvalidError{"field " + name, fmt.Sprintf("the ready message of vLLM %s has none; leave it out", g.Version)}
		}
	}
	if len(g.ReadyFields) == 0 {
		return []byte{}, nil
	}
	texts, ints := r.texts(), r.ints()
	m := &Map{}
	for _, name := range g.ReadyFields {
		var v any
		if rest, given := r.Rest[name]; given {
			v = rest
		} else if s := texts[name]; s != nil {
			v = *s
		} else if n := ints[name]; n != nil {
			v = *n
		}
		m.Keys, m.Values = append(m.Keys, name), append(m.Values, v)
	}
	return encodeMap("ready message", m)
}

// DecodeReady reads the message of any generation. An empty one gives a zero
// Ready. The error wraps [ErrCorrupt] or [ErrUnsupported].
func DecodeReady(b []byte) (*Ready, error) {
	r := &Ready{}
	if len(b) == 0 {
		return r, nil
	}
	rest, err := decodeMap("ready message", b)
	if err != nil {
		return nil, err
	}
	r.Rest = rest
	for name, s := range r.texts() {
		take(rest, name, s)
	}
	for name, n := range r.ints() {
		takeInt(rest, name, n)
	}
	return r, nil
}
