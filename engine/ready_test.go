package engine_test

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/engine"
	"github.com/ringcache/ringcache/engine/enginetest"
	"github.com/ringcache/ringcache/serde/enginecore"
)

// TestAbsurdReady: an engine that reports of itself what can't be is refused, by the name of the
// field, and nothing of it reaches the cache.
func TestAbsurdReady(t *testing.T) {
	rest := func(name string, v any) func(*enginecore.Ready) {
		return func(r *enginecore.Ready) { r.Rest = map[string]any{name: v} }
	}
	for name, changes := range map[string][]func(*enginecore.Ready){
		"max_model_len": {
			func(r *enginecore.Ready) { r.MaxModelLen = -5 }, func(r *enginecore.Ready) { r.MaxModelLen = 1 << 62 }, rest("max_model_len", "long"),
			rest("max_model_len", 4096.5), rest("max_model_len", uint64(math.MaxUint64)),
		},
		"world_size":             {func(r *enginecore.Ready) { r.WorldSize = -5 }, func(r *enginecore.Ready) { r.WorldSize = 1 << 40 }},
		"max_num_seqs":           {func(r *enginecore.Ready) { r.MaxNumSeqs = -1 }, func(r *enginecore.Ready) { r.MaxNumSeqs = 1 << 40 }},
		"max_num_batched_tokens": {func(r *enginecore.Ready) { r.MaxNumBatchedTokens = math.MinInt64 }, func(r *enginecore.Ready) { r.MaxNumBatchedTokens = 1 << 40 }},
		"block_size":             {func(r *enginecore.Ready) { r.BlockSize = -1 }},
		"num_gpu_blocks":         {func(r *enginecore.Ready) { r.NumGPUBlocks = -1 }},
		"data_parallel_size":     {func(r *enginecore.Ready) { r.DataParallelSize = -1 }},
		"data_parallel_rank":     {func(r *enginecore.Ready) { r.DataParallelRank = -1 }, func(r *enginecore.Ready) { r.DataParallelRank = 1 }},
		"tensor_parallel_size":   {func(r *enginecore.Ready) { r.TensorParallelSize = -1 }},
		"pipeline_parallel_size": {func(r *enginecore.Ready) { r.PipelineParallelSize = 1 << 40 }},
		"vllm_version":           {func(r *enginecore.Ready) { r.VLLMVersion = strings.Repeat("9.", 100_000) }, rest("vllm_version", 33)},
	} {
		for _, change := range changes {
			t.Run(name, func(t *testing.T) {
				r := newRig(t, setup{mode: "shm", idle: true})
				_, _, err := dialHostile(t, r, "\x00\x00", func(_ *enginetest.Peer, r *enginecore.Ready) { change(r) })
				var m *engine.MismatchError
				require.ErrorAs(t, err, &m)
				require.Equal(t, name, m.What)
				require.Less(t, len(err.Error()), 500)
				require.Nil(t, r.Ready())
			})
		}
	}
}
