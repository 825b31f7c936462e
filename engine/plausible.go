package engine

import (
	"fmt"
	"maps"
	"slices"

	"github.com/ringcache/ringcache/serde/enginecore"
)

// readyBounds are the largest numbers that an engine may have in its ready message,
// far above those of any engine. What the engine does not report is 0.
var readyBounds = map[string]int{
	"max_model_len": 1 << 31, "max_num_batched_tokens": 1 << 31, "max_num_seqs": 1 << 24,
	"num_gpu_blocks": 1 << 40, "block_size": 1 << 24,
	"world_size": 1 << 16, "data_parallel_size": 1 << 16, "data_parallel_rank": 1<<16 - 1,
	"tensor_parallel_size": 1 << 16, "pipeline_parallel_size": 1 << 16,
}

// maxVersion is the length of a version.
const maxVersion = 128

// plausible refuses an engine that reports of itself what can't be: requests are bounded
// by these numbers, and shared memory is read by as many workers.
func plausible(r *enginecore.Ready) error {
	const advice = "the peer is not vLLM, or a release that this library does not support"
	reported := map[string]int{
		"max_model_len": r.MaxModelLen, "max_num_batched_tokens": r.MaxNumBatchedTokens, "max_num_seqs": r.MaxNumSeqs,
		"num_gpu_blocks": r.NumGPUBlocks, "block_size": r.BlockSize,
		"world_size": r.WorldSize, "data_parallel_size": r.DataParallelSize, "data_parallel_rank": r.DataParallelRank,
		"tensor_parallel_size": r.TensorParallelSize, "pipeline_parallel_size": r.PipelineParallelSize,
	}
	for _, name := range slices.Sorted(maps.Keys(readyBounds)) {
		most := readyBounds[name]
		if v := r.Rest[name]; v != nil { // what is below 0, or no whole number, is there
			return &MismatchError{name, fmt.Sprintf("a number from 0 to %d", most), fmt.Sprintf("%.64v", v), advice}
		}
		if n := reported[name]; n < 0 || n > most {
			return &MismatchError{name, fmt.Sprintf("a number from 0 to %d", most), fmt.Sprint(n), advice}
		}
	}
	switch v := r.Rest["vllm_version"]; {
	case v != nil:
		return &MismatchError{"vllm_version", "text", fmt.Sprintf("%.64v", v), advice}
	case len(r.VLLMVersion) > maxVersion:
		return &MismatchError{"vllm_version", fmt.Sprintf("at most %d bytes long", maxVersion),
			fmt.Sprintf("%.32q...", r.VLLMVersion), advice}
	case r.DataParallelRank > 0 && r.DataParallelRank >= max(r.DataParallelSize, 1):
		return &MismatchError{"data_parallel_rank", fmt.Sprintf("below the data_parallel_size of %d",
			max(r.DataParallelSize, 1)), fmt.Sprint(r.DataParallelRank), advice}
	}
	return nil
}
