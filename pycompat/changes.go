package pycompat

// changes lists what changed between releases. A change carries the first release
// that has it. To add a release, add its version to the list in releases, and here
// what it changes, if anything.
//
// Sources in vLLM: vllm/distributed/device_communicators/shm_object_storage.py
// (offset, signature, counting, clear), vllm/v1/serial_utils.py and
// vllm/multimodal/inputs.py (item, feature), vllm/envs.py (name). The comments of
// Generation and of the rules name the other files. For fields, parameters and the
// encoder cache the sources of every release were read.
var changes = []struct {
	since string
	apply func(*Generation)
}{
	// The free rule of 0.11.0 overwrites live chunks. A reader can't see which rule its writer follows, so a writer
	// of this library uses that of later releases for workers of 0.11.0, too.
	{"0.11.0", func(g *Generation) {
		g.Counting, g.ItemForm, g.IDsRestart, g.FixedName = CountPerUse, ItemPositional, true, true
		g.Hash.TokenizerKwargs, g.Cache.ExternalLBAlone = true, true
		g.Encoder.Tokens, g.Encoder.CopiedInputs = true, true
		g.RequestFields, g.OutputFields, g.OutputsFields = names(firstRequest), names(firstOutput), names(firstOutputs)
		g.Params.Sampling, g.Params.Pooling, g.Params.LoRA = names(firstSampling), names(firstPooling), names(firstLoRA)
		g.Params.PoolingTasks = names("encode embed classify score")
		g.ReadyFields = []string{}
	}},
	{"0.11.1", func(g *Generation) {
		add(&g.OutputFields, "num_nans_in_logits")
		add(&g.Params.Sampling, "skip_reading_prefix_cache")
		drop(&g.Params.Pooling, "activation")
		insert(&g.Params.Pooling, "step_tag_id", "activation use_activation")
		insert(&g.Params.Pooling, "extra_kwargs", "skip_reading_prefix_cache")
		g.Params.PoolingTasks = names("embed classify score token_embed token_classify plugin")
		g.Params.PoolingSkip = true
	}},
	{"0.12.0", func(g *Generation) {
		g.Counting = CountTouch
		g.Cache.Touch, g.Cache.GhostTouch = true, true
		drop(&g.Params.Sampling, "best_of _real_n guided_decoding")
		insert(&g.Params.Sampling, "detokenize", "flat_logprobs")
		g.Params.PoolingSkip = false
	}},
	{"0.13.0", func(g *Generation) {
		g.ItemForm = ItemKeyed
		g.Hash.OriginalBytes = true
		g.Encoder.Tokens = false
	}},
	{"0.14.0", func(g *Generation) {
		g.FeatureHash, g.Hash.BareNone = true, true
		add(&g.RequestFields, "external_req_id")
		insert(&g.OutputFields, "num_nans_in_logits", "routed_experts")
		insert(&g.Params.Sampling, "output_text_buffer_length", "skip_clone")
		drop(&g.Params.LoRA, "lora_local_path long_lora_max_len")
	}},
	{"0.15.0", func(g *Generation) {
		g.FixedName = false
		g.Hash.Algorithms = true
		g.Cache.ExternalLBAlone = false
		g.Encoder.CopiedInputs = false
		insert(&g.RequestFields, "external_req_id", "resumable")
		add(&g.Params.LoRA, "load_inplace")
	}},
	{"0.16.0", func(g *Generation) {
		g.ItemForm = ItemMap
		g.Hash.Sorted, g.Hash.Scalar0D = true, true
		add(&g.RequestFields, "reasoning_ended")
		insert(&g.OutputFields, "routed_experts", "num_external_computed_tokens")
		drop(&g.Params.Pooling, "normalize softmax activation use_activation")
		insert(&g.Params.Pooling, "dimensions", "use_activation")
	}},
	{"0.17.0", func(g *Generation) {
		g.Hash.TokenizerKwargs = false
		drop(&g.RequestFields, "eos_token_id")
		drop(&g.Params.Sampling, "logits_processors truncate_prompt_tokens")
		insert(&g.Params.Sampling, "_all_stop_token_ids", "_eos_token_id")
		add(&g.Params.Sampling, "repetition_detection")
		drop(&g.Params.Pooling, "truncate_prompt_tokens")
	}},
	{"0.18.0", func(g *Generation) { insert(&g.Params.Pooling, "extra_kwargs", "late_interaction_params") }},
	{"0.19.0", func(g *Generation) {
		insert(&g.Params.Sampling, "repetition_detection", "thinking_token_budget")
		g.Params.PoolingTasks = names("embed classify token_embed token_classify plugin embed&token_classify")
	}},
	{"0.20.0", func(g *Generation) {
		drop(&g.OutputFields, "num_cached_tokens num_external_computed_tokens")
		insert(&g.OutputFields, "routed_experts", "prefill_stats")
		g.ReadyFields = names("max_model_len num_gpu_blocks dp_stats_address")
		insert(&g.Params.Sampling, "flat_logprobs", "logprob_token_ids")
	}},
	{"0.20.1", func(g *Generation) { add(&g.RequestFields, "reasoning_parser_kwargs") }},
	// For Rereads: the first release that is not known to have
	// VLLM_USE_V2_MODEL_RUNNER off.
	{"0.21.0", func(g *Generation) {
		g.Rereads = true
		insert(&g.RequestFields, "client_index", "prompt_is_token_ids")
		add(&g.RequestFields, "abort_immediately")
	}},
	{"0.22.0", func(g *Generation) {
		add(&g.ReadyFields, "dtype")
		insert(&g.Params.Sampling, "bad_words", "routed_experts_prompt_start")
		add(&g.Params.LoRA, "is_3d_lora_weight")
	}},
	{"0.23.0", func(g *Generation) {
		g.Encoder.OwnInputs = true
		insert(&g.ReadyFields, "dp_stats_address", "block_size")
		add(&g.ReadyFields, "vllm_version")
	}},
	{"0.24.0", func(g *Generation) {
		g.Cache.GhostTouch = false
		add(&g.ReadyFields, "world_size data_parallel_size kv_cache_size_tokens kv_cache_max_concurrency")
		g.Params.MaxTemperature = 2
	}},
	{"0.26.0", func(g *Generation) { insert(&g.OutputFields, "trace_headers", "ec_transfer_params") }},
	{"0.27.0", func(g *Generation) {
		g.Hash.IOConfig, g.Hash.VideoBytes, g.Hash.RawItems = true, true, true
		insert(&g.ReadyFields, "kv_cache_size_tokens",
			"tensor_parallel_size pipeline_parallel_size decode_context_parallel_size "+
				"data_parallel_rank max_num_seqs max_num_batched_tokens instance_id")
		add(&g.ReadyFields, "kv_events_config")
		insert(&g.Params.Sampling, "skip_clone", "stream_interval")
	}},
	{"0.28.0", func(g *Generation) {
		g.Cache.MissError = true
		g.Encoder.SparesAllocated = true
		add(&g.RequestFields, "session_id")
		add(&g.OutputFields, "mm_cache_miss_hashes new_sampling_mask")
		add(&g.ReadyFields, "weight_transfer_backend enable_sleep_mode supports_draft_weight_updates")
	}},
	{"0.29.0", func(g *Generation) {
		g.Cache.PutIfFits = true
		g.Encoder.HoldsToLast = true
		add(&g.OutputFields, "spec_decode_metrics")
		insert(&g.ReadyFields, "kv_cache_size_tokens", "supports_lora max_loras mamba_block_size")
		drop(&g.Params.Sampling, "routed_experts_prompt_start")
		add(&g.Params.Sampling, "routed_experts_prompt_start trace_decode_token_ids")
	}},
	{"0.30.0", func(g *Generation) {
		g.Hash.TorchVideo, g.Hash.NestedFactors = true, true
		insert(&g.Params.Sampling, "top_p", "watermarking")
	}},
	{"0.31.0", func(g *Generation) {
		g.Hash.Framed = true
		g.Cache.FreshWins = true
		g.Encoder.KeepsCount = true
		add(&g.RequestFields, "kv_hints")
		add(&g.OutputFields, "prompt_token_id_logprobs")
		add(&g.ReadyFields, "effective_attention_block_size")
		insert(&g.Params.Sampling, "logprob_token_ids", "prompt_logprob_token_ids prompt_logprob_start")
	}},
	{"0.32.0", func(g *Generation) {
		g.DataOffset, g.Signed, g.Counting, g.IDsRestart = 32, true, CountPerAddress, false
		add(&g.OutputsFields, "weight_version")
		g.Params.ScoreArray = true
		insert(&g.Params.Sampling, "structured_outputs", "_watermarking_skipped")
		drop(&g.Params.LoRA, "tensorizer_config_dict")
	}},
	{"0.33.0", func(g *Generation) {
		add(&g.OutputFields, "error")
		add(&g.ReadyFields, "coord_store_port coordinator_input_address coordinator_output_address")
		add(&g.Params.Pooling, "late_chunking_params")
	}},
}
