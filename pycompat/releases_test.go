package pycompat_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/goldentest"
	"github.com/ringcache/ringcache/pycompat"
)

// TestFieldsAgreeWithGoldens compares the lists of the table with those that
// were read from the classes of the releases.
func TestFieldsAgreeWithGoldens(t *testing.T) {
	n := 0
	for _, f := range goldentest.Files(t, "requests") {
		var want struct {
			Request       []string       `json:"request_fields"`
			Output        []string       `json:"output_fields"`
			Outputs       []string       `json:"outputs_fields"`
			Ready         []string       `json:"ready_fields"`
			FinishReasons map[string]int `json:"finish_reasons"`
		}
		f.Decode(t, &want)
		for _, v := range f.Releases {
			g := lookup(t, v)
			require.Equal(t, want.Request, g.RequestFields, v)
			require.Equal(t, want.Output, g.OutputFields, v)
			require.Equal(t, want.Outputs, g.OutputsFields, v)
			if want.Ready == nil {
				require.Empty(t, g.ReadyFields, v)
			} else {
				require.Equal(t, want.Ready, g.ReadyFields, v)
			}
			n++
		}
	}
	require.GreaterOrEqual(t, n, 14)
}

// TestListsOfNames: a name stands in a list once, and no list is nil, which JSON
// would show as null.
func TestListsOfNames(t *testing.T) {
	for _, g := range pycompat.Releases() {
		for what, list := range map[string][]string{
			"request": g.RequestFields, "output": g.OutputFields, "outputs": g.OutputsFields, "ready": g.ReadyFields,
			"sampling": g.Params.Sampling, "pooling": g.Params.Pooling, "tasks": g.Params.PoolingTasks, "LoRA": g.Params.LoRA,
		} {
			require.NotNil(t, list, "%s in %s", what, g.Version)
			require.NotContains(t, list, "", "%s in %s", what, g.Version)
			sorted := slices.Sorted(slices.Values(list))
			require.Len(t, slices.Compact(sorted), len(list), "%s in %s: %q", what, g.Version, list)
			require.Equal(t, len(list), cap(list), "%s in %s: to append must not write into the table", what, g.Version)
		}
	}
}

// TestFieldsByRelease spells out, for the releases between those of the golden
// files, where each field came and went (read from their sources).
func TestFieldsByRelease(t *testing.T) {
	type list func(*pycompat.Generation) []string
	request := list(func(g *pycompat.Generation) []string { return g.RequestFields })
	output := list(func(g *pycompat.Generation) []string { return g.OutputFields })
	ready := list(func(g *pycompat.Generation) []string { return g.ReadyFields })
	sampling := list(func(g *pycompat.Generation) []string { return g.Params.Sampling })
	pooling := list(func(g *pycompat.Generation) []string { return g.Params.Pooling })
	lora := list(func(g *pycompat.Generation) []string { return g.Params.LoRA })
	for _, c := range []struct {
		list        list
		name        string
		first, last string // both inclusive; "" for the end of the table
	}{
		{request, "eos_token_id", "0.11.0", "0.16.0"},
		{request, "external_req_id", "0.14.0", ""},
		{request, "resumable", "0.15.0", ""},
		{request, "reasoning_ended", "0.16.0", ""},
		{request, "reasoning_parser_kwargs", "0.20.1", ""},
		{request, "prompt_is_token_ids", "0.21.0", ""},
		{request, "abort_immediately", "0.21.0", ""},
		{request, "session_id", "0.28.0", ""},
		{request, "kv_hints", "0.31.0", ""},
		{output, "num_nans_in_logits", "0.11.1", ""},
		{output, "num_cached_tokens", "0.11.0", "0.19.1"},
		{output, "num_external_computed_tokens", "0.16.0", "0.19.1"},
		{output, "prefill_stats", "0.20.0", ""},
		{output, "routed_experts", "0.14.0", ""},
		{output, "ec_transfer_params", "0.26.0", ""},
		{output, "mm_cache_miss_hashes", "0.28.0", ""},
		{output, "spec_decode_metrics", "0.29.0", ""},
		{output, "prompt_token_id_logprobs", "0.31.0", ""},
		{output, "error", "0.33.0", ""},
		{ready, "max_model_len", "0.20.0", ""},
		{ready, "dtype", "0.22.0", ""},
		{ready, "vllm_version", "0.23.0", ""},
		{ready, "world_size", "0.24.0", ""},
		{ready, "data_parallel_rank", "0.27.0", ""},
		{ready, "weight_transfer_backend", "0.28.0", ""},
		{ready, "supports_lora", "0.29.0", ""},
		{sampling, "best_of", "0.11.0", "0.11.2"},
		{sampling, "truncate_prompt_tokens", "0.11.0", "0.16.0"},
		{sampling, "_eos_token_id", "0.17.0", ""},
		{sampling, "thinking_token_budget", "0.19.0", ""},
		{sampling, "logprob_token_ids", "0.20.0", ""},
		{sampling, "stream_interval", "0.27.0", ""},
		{sampling, "watermarking", "0.30.0", ""},
		{pooling, "use_activation", "0.11.1", ""},
		{pooling, "late_chunking_params", "0.33.0", ""},
		{lora, "is_3d_lora_weight", "0.22.0", ""},
		{lora, "tensorizer_config_dict", "0.11.0", "0.31.0"},
	} {
		in := false
		for _, g := range pycompat.Releases() {
			in = in || g.Version == c.first
			require.Equal(t, in, slices.Contains(c.list(g), c.name), "%s in %s", c.name, g.Version)
			if g.Version == c.last {
				in = false
			}
		}
	}
}
