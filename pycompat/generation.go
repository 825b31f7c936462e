package pycompat

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ErrUnknownVersion is wrapped by every [UnknownVersionError].
var ErrUnknownVersion = errors.New("pycompat: unknown vLLM version")

// UnknownVersionError reports a vLLM version that is not in the table. Newest
// is the newest one that is; use [TreatAs] to say that the unknown version
// speaks the wire of a known one.
type UnknownVersionError struct {
	Version string
	Newest  string
}

func (e *UnknownVersionError) Error() string {
	return fmt.Sprintf("pycompat: vLLM version %q is not known (newest known: %s, oldest: %s); "+
		"if its wire is that of a known release, say so with TreatAs", e.Version, e.Newest, releases[0].Version)
}

// Unwrap makes errors.Is(err, ErrUnknownVersion) true.
func (e *UnknownVersionError) Unwrap() error { return ErrUnknownVersion }

// CountRule says how writer and readers count the uses of a chunk.
type CountRule uint8

const (
	// CountPerUse (vLLM 0.11): one for every put or cached look-up on the
	// writer's side, one for every get on each reader's. There is no touch.
	CountPerUse CountRule = iota + 1
	// CountTouch (vLLM 0.12 to 0.31): as CountPerUse, and touch counts too: on
	// the writer when the key is present, on a reader when every reader has
	// read the chunk at least once.
	CountTouch
	// CountPerAddress (vLLM 0.32 on): as CountPerUse; touch counts nothing, on
	// the writer it only protects a chunk from being freed until the touches
	// are released.
	CountPerAddress
)

func (r CountRule) String() string {
	switch r {
	case CountPerUse:
		return "per-use"
	case CountTouch:
		return "touch"
	case CountPerAddress:
		return "per-address"
	}
	return "CountRule(" + strconv.Itoa(int(r)) + ")"
}

// ItemForm is how a MultiModalKwargsItem is laid out in MessagePack
// (vllm/v1/serial_utils.py).
type ItemForm uint8

const (
	// ItemPositional (vLLM 0.11 and 0.12): array of maps {modality, key, data,
	// field}; the field is an array of its name and its positional arguments.
	ItemPositional ItemForm = iota + 1
	// ItemKeyed (vLLM 0.13 to 0.15): as ItemPositional, but the field is a pair
	// of its name and a map of named arguments.
	ItemKeyed
	// ItemMap (vLLM 0.16 on): map from key to {data, field}; the field as in
	// ItemKeyed. An item has no modality of its own any more.
	ItemMap
)

func (f ItemForm) String() string {
	switch f {
	case ItemPositional:
		return "positional"
	case ItemKeyed:
		return "keyed"
	case ItemMap:
		return "map"
	}
	return "ItemForm(" + strconv.Itoa(int(f)) + ")"
}

// Generation is everything in which the releases of vLLM differ for this
// library. Code asks a Generation and never compares versions. The zero value
// is not usable by itself; constructors that take one read it as [Newest].
type Generation struct {
	// Version is the release it was looked up for, such as "0.32.0".
	Version string
	// DataOffset is the number of bytes in front of the ring: 0, or 32 where a
	// secret for signing handles lies there. A segment for a ring of N bytes is
	// N + DataOffset bytes long.
	DataOffset int
	// Signed says that a handle carries an HMAC-SHA256 signature.
	Signed bool
	// Counting is the rule by which both sides count uses.
	Counting CountRule
	// IDsRestart says that clear restarts chunk ids at 0. Where it is false ids
	// only ever rise.
	IDsRestart bool
	// ItemForm is the wire form of a MultiModalKwargsItem.
	ItemForm ItemForm
	// FeatureHash says that a feature spec has the field mm_hash.
	FeatureHash bool
	// FixedName says that the default segment name is one fixed string for all
	// servers of a host; otherwise it ends in a fresh UUID.
	FixedName bool
	// Rereads says that an engine may read an address again after all its workers
	// have read it, since its newer model runner (on by default in 0.33.0, perhaps
	// on from 0.21.0) resumes a preempted request as a new one.
	Rereads bool
	// Hash is the form of hash streams and keys.
	Hash HashRules
	// Cache is the behaviour of the mirrored LRU caches.
	Cache CacheRules
	// RequestFields, OutputFields and OutputsFields are the fields of
	// EngineCoreRequest, EngineCoreOutput and EngineCoreOutputs, which are arrays
	// (vllm/v1/engine/__init__.py).
	RequestFields, OutputFields, OutputsFields Fields
	// ReadyFields are the names in the map that an engine sends first on an input
	// socket; without any it sends no bytes there. With "world_size" among them
	// an engine tells how many workers it has.
	ReadyFields Fields
	// Params says which parameters there are.
	Params ParamRules
}

// IsZero reports whether g is the zero value, which stands for [Newest].
func (g Generation) IsZero() bool { return g == Generation{} }

// OrNewest returns g, or the newest known generation when g is zero.
func (g Generation) OrNewest() Generation {
	if g.IsZero() {
		return Newest()
	}
	return g
}

// SameWire reports whether a writer of generation g and a reader of generation
// o understand each other through shared memory.
func (g Generation) SameWire(o Generation) bool {
	return g.DataOffset == o.DataOffset && g.Signed == o.Signed &&
		g.Counting == o.Counting && g.ItemForm == o.ItemForm
}

// The table. A change names the first release that has it; releases lists
// every release on PyPI, each as the changes up to it.
//
// Files: vllm/distributed/device_communicators/shm_object_storage.py (offset,
// signature, counting, clear), vllm/v1/serial_utils.py and
// vllm/multimodal/inputs.py (item, feature), vllm/envs.py (name); those of
// fields and parameters are named there. For fields and parameters the sources of
// every release were read.
var changes = []struct {
	since string
	apply func(*Generation)
}{
	{"0.11.0", func(g *Generation) {
		g.Counting, g.ItemForm, g.IDsRestart, g.FixedName = CountPerUse, ItemPositional, true, true
		g.Hash.TokenizerKwargs, g.Cache.ExternalLBAlone = true, true
		g.RequestFields, g.OutputFields, g.OutputsFields = requestFields, outputFields, outputsFields
		g.Params.Sampling, g.Params.Pooling, g.Params.LoRA = samplingNames, poolingFields, loraFields
		g.Params.PoolingTasks = "encode embed classify score"
	}},
	{"0.11.1", func(g *Generation) {
		g.OutputFields.insert("", "num_nans_in_logits")
		g.Params.Sampling.insert("", "skip_reading_prefix_cache")
		g.Params.Pooling.drop("activation")
		g.Params.Pooling.insert("step_tag_id", "activation use_activation")
		g.Params.Pooling.insert("extra_kwargs", "skip_reading_prefix_cache")
		g.Params.PoolingTasks = "embed classify score token_embed token_classify plugin"
		g.Params.PoolingSkip = true
	}},
	{"0.12.0", func(g *Generation) {
		g.Counting = CountTouch
		g.Cache.Touch, g.Cache.GhostTouch = true, true
		g.Params.Sampling.drop("best_of", "_real_n", "guided_decoding")
		g.Params.Sampling.insert("detokenize", "flat_logprobs")
		g.Params.PoolingSkip = false
	}},
	{"0.13.0", func(g *Generation) {
		g.ItemForm = ItemKeyed
		g.Hash.OriginalBytes = true
	}},
	{"0.14.0", func(g *Generation) {
		g.FeatureHash, g.Hash.BareNone = true, true
		g.RequestFields.insert("", "external_req_id")
		g.OutputFields.insert("num_nans_in_logits", "routed_experts")
		g.Params.Sampling.insert("output_text_buffer_length", "skip_clone")
		g.Params.LoRA.drop("lora_local_path", "long_lora_max_len")
	}},
	{"0.15.0", func(g *Generation) {
		g.FixedName = false
		g.Hash.Algorithms = true
		g.Cache.ExternalLBAlone = false
		g.RequestFields.insert("external_req_id", "resumable")
		g.Params.LoRA.insert("", "load_inplace")
	}},
	{"0.16.0", func(g *Generation) {
		g.ItemForm = ItemMap
		g.Hash.Sorted, g.Hash.Scalar0D = true, true
		g.RequestFields.insert("", "reasoning_ended")
		g.OutputFields.insert("routed_experts", "num_external_computed_tokens")
		g.Params.Pooling.drop("normalize", "softmax", "activation", "use_activation")
		g.Params.Pooling.insert("dimensions", "use_activation")
	}},
	{"0.17.0", func(g *Generation) {
		g.Hash.TokenizerKwargs = false
		g.RequestFields.drop("eos_token_id")
		g.Params.Sampling.drop("logits_processors", "truncate_prompt_tokens")
		g.Params.Sampling.insert("_all_stop_token_ids", "_eos_token_id")
		g.Params.Sampling.insert("", "repetition_detection")
		g.Params.Pooling.drop("truncate_prompt_tokens")
	}},
	{"0.18.0", func(g *Generation) { g.Params.Pooling.insert("extra_kwargs", "late_interaction_params") }},
	{"0.19.0", func(g *Generation) {
		g.Params.Sampling.insert("repetition_detection", "thinking_token_budget")
		g.Params.PoolingTasks = "embed classify token_embed token_classify plugin embed&token_classify"
	}},
	{"0.20.0", func(g *Generation) {
		g.OutputFields.drop("num_cached_tokens", "num_external_computed_tokens")
		g.OutputFields.insert("routed_experts", "prefill_stats")
		g.ReadyFields = "max_model_len num_gpu_blocks dp_stats_address"
		g.Params.Sampling.insert("flat_logprobs", "logprob_token_ids")
	}},
	{"0.20.1", func(g *Generation) { g.RequestFields.insert("", "reasoning_parser_kwargs") }},
	// For Rereads: the first release that is not known to have
	// VLLM_USE_V2_MODEL_RUNNER off.
	{"0.21.0", func(g *Generation) {
		g.Rereads = true
		g.RequestFields.insert("client_index", "prompt_is_token_ids")
		g.RequestFields.insert("", "abort_immediately")
	}},
	{"0.22.0", func(g *Generation) {
		g.ReadyFields.insert("", "dtype")
		g.Params.Sampling.insert("bad_words", "routed_experts_prompt_start")
		g.Params.LoRA.insert("", "is_3d_lora_weight")
	}},
	{"0.23.0", func(g *Generation) {
		g.ReadyFields.insert("dp_stats_address", "block_size")
		g.ReadyFields.insert("", "vllm_version")
	}},
	{"0.24.0", func(g *Generation) {
		g.Cache.GhostTouch = false
		g.ReadyFields.insert("", "world_size data_parallel_size kv_cache_size_tokens kv_cache_max_concurrency")
		g.Params.MaxTemperature = 2
	}},
	{"0.26.0", func(g *Generation) { g.OutputFields.insert("trace_headers", "ec_transfer_params") }},
	{"0.27.0", func(g *Generation) {
		g.Hash.IOConfig, g.Hash.VideoBytes, g.Hash.RawItems = true, true, true
		g.ReadyFields.insert("kv_cache_size_tokens", "tensor_parallel_size pipeline_parallel_size decode_context_parallel_size "+
			"data_parallel_rank max_num_seqs max_num_batched_tokens instance_id")
		g.ReadyFields.insert("", "kv_events_config")
		g.Params.Sampling.insert("skip_clone", "stream_interval")
	}},
	{"0.28.0", func(g *Generation) {
		g.Cache.MissError = true
		g.RequestFields.insert("", "session_id")
		g.OutputFields.insert("", "mm_cache_miss_hashes new_sampling_mask")
		g.ReadyFields.insert("", "weight_transfer_backend enable_sleep_mode supports_draft_weight_updates")
	}},
	{"0.29.0", func(g *Generation) {
		g.Cache.PutIfFits = true
		g.OutputFields.insert("", "spec_decode_metrics")
		g.ReadyFields.insert("kv_cache_size_tokens", "supports_lora max_loras mamba_block_size")
		g.Params.Sampling.drop("routed_experts_prompt_start")
		g.Params.Sampling.insert("", "routed_experts_prompt_start trace_decode_token_ids")
	}},
	{"0.30.0", func(g *Generation) {
		g.Hash.TorchVideo, g.Hash.NestedFactors = true, true
		g.Params.Sampling.insert("top_p", "watermarking")
	}},
	{"0.31.0", func(g *Generation) {
		g.Hash.Framed, g.Hash.LenientEXIF = true, true
		g.Cache.FreshWins = true
		g.RequestFields.insert("", "kv_hints")
		g.OutputFields.insert("", "prompt_token_id_logprobs")
		g.ReadyFields.insert("", "effective_attention_block_size")
		g.Params.Sampling.insert("logprob_token_ids", "prompt_logprob_token_ids prompt_logprob_start")
	}},
	{"0.32.0", func(g *Generation) {
		g.DataOffset, g.Signed, g.Counting, g.IDsRestart = 32, true, CountPerAddress, false
		g.OutputsFields.insert("", "weight_version")
		g.Params.ScoreArray = true
		g.Params.Sampling.insert("structured_outputs", "_watermarking_skipped")
		g.Params.LoRA.drop("tensorizer_config_dict")
	}},
	{"0.33.0", func(g *Generation) {
		g.OutputFields.insert("", "error")
		g.ReadyFields.insert("", "coord_store_port coordinator_input_address coordinator_output_address")
		g.Params.Pooling.insert("", "late_chunking_params")
	}},
}

var releases = buildReleases(
	"0.11.0", "0.11.1", "0.11.2", "0.12.0", "0.13.0", "0.14.0", "0.14.1", "0.15.0", "0.15.1",
	"0.16.0", "0.17.0", "0.17.1", "0.18.0", "0.18.1", "0.19.0", "0.19.1", "0.20.0", "0.20.1", "0.20.2",
	"0.21.0", "0.22.0", "0.22.1", "0.23.0", "0.24.0", "0.25.0", "0.25.1", "0.26.0", "0.27.0", "0.27.1",
	"0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0",
)

func buildReleases(versions ...string) []Generation {
	var g Generation
	out := make([]Generation, 0, len(versions))
	next := 0
	for _, v := range versions {
		if next < len(changes) && changes[next].since == v {
			changes[next].apply(&g)
			next++
		}
		g.Version = v
		out = append(out, g)
	}
	if next != len(changes) {
		panic("pycompat: change since " + changes[next].since + " names no release")
	}
	return out
}

// Newest returns the newest known generation.
func Newest() Generation { return releases[len(releases)-1] }

// Releases returns every known release, oldest first.
func Releases() []Generation { return slices.Clone(releases) }

// Lookup returns the generation of a vLLM release. The version may be written
// as vLLM reports it: a leading "v", a local part ("+cpu") and a post release
// (".post2") are ignored. Anything else that is not in the table, development
// versions and release candidates included, is an [UnknownVersionError].
func Lookup(version string) (Generation, error) {
	v := strings.TrimPrefix(version, "v")
	v, _, _ = strings.Cut(v, "+")
	if base, n, ok := strings.Cut(v, ".post"); ok {
		if _, err := strconv.ParseUint(n, 10, 32); err == nil {
			v = base
		}
	}
	for _, g := range releases {
		if g.Version == v {
			return g, nil
		}
	}
	return Generation{}, &UnknownVersionError{Version: version, Newest: Newest().Version}
}

// TreatAs returns the generation of the known release as, for an engine whose
// own version is not in the table. Its Version is the engine's. The caller
// answers for it that the wire is the same.
func TreatAs(version, as string) (Generation, error) {
	g, err := Lookup(as)
	if err != nil {
		return Generation{}, err
	}
	g.Version = version
	return g, nil
}
