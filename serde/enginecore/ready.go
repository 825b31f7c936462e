package enginecore

// Ready is the first message that EngineCore sends on an input socket
// (EngineCoreReadyResponse in vllm/v1/engine/__init__.py): a map from 0.20.0
// on, empty before. What a release does not report is zero:
// ReadyFields of pycompat.Generation lists what it reports. Until 0.22.1 that is
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
	// values as [Codec.DecodeOutputs] gives them.
	Rest map[string]any
}

// fields returns pointers to the fields by their names on the wire: *string, or *int
// for counts.
func (r *Ready) fields() map[string]any {
	return map[string]any{
		"vllm_version": &r.VLLMVersion, "dtype": &r.DType, "instance_id": &r.InstanceID,
		"max_model_len": &r.MaxModelLen, "num_gpu_blocks": &r.NumGPUBlocks, "block_size": &r.BlockSize,
		"world_size": &r.WorldSize, "data_parallel_size": &r.DataParallelSize,
		"data_parallel_rank":   &r.DataParallelRank,
		"tensor_parallel_size": &r.TensorParallelSize, "pipeline_parallel_size": &r.PipelineParallelSize,
		"max_num_seqs": &r.MaxNumSeqs, "max_num_batched_tokens": &r.MaxNumBatchedTokens,
	}
}

// DecodeReady reads the message of any generation. An empty one gives a zero
// Ready. The error wraps [serde.ErrCorrupt] or [serde.ErrUnsupported].
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
	for name, field := range r.fields() {
		switch field := field.(type) {
		case *string:
			take(rest, name, field)
		case *int:
			takeInt(rest, name, field)
		}
	}
	return r, nil
}
