package pycompat

import (
	"slices"
	"strings"
)

// releases is the table: every release on PyPI, oldest first.
var releases = build(
	"0.11.0", "0.11.1", "0.11.2", "0.12.0", "0.13.0", "0.14.0", "0.14.1", "0.15.0", "0.15.1",
	"0.16.0", "0.17.0", "0.17.1", "0.18.0", "0.18.1", "0.19.0", "0.19.1", "0.20.0", "0.20.1", "0.20.2",
	"0.21.0", "0.22.0", "0.22.1", "0.23.0", "0.24.0", "0.25.0", "0.25.1", "0.26.0", "0.27.0", "0.27.1",
	"0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0",
)

// build returns a record for each version: all changes up to it, in order.
func build(versions ...string) []*Generation {
	g := Generation{complete: true}
	out := make([]*Generation, 0, len(versions))
	next := 0
	for _, v := range versions {
		if next < len(changes) && changes[next].since == v {
			changes[next].apply(&g)
			next++
		}
		release := g
		release.Version = v
		out = append(out, &release)
	}
	if next != len(changes) {
		panic("pycompat: change since " + changes[next].since + " names no release")
	}
	return out
}

// names splits a list of names at spaces.
func names(list string) []string { return slices.Clip(strings.Fields(list)) }

// add puts more names at the end of a list. As insert and drop do, add leaves the
// array of the list alone, because earlier releases share it.
func add(list *[]string, more string) {
	*list = slices.Clip(slices.Concat(*list, names(more)))
}

// insert puts more names in front of the name before, which must be in the list.
func insert(list *[]string, before, more string) {
	at := place(*list, before)
	*list = slices.Clip(slices.Concat((*list)[:at], names(more), (*list)[at:]))
}

// drop removes names, each of which must be in the list.
func drop(list *[]string, gone string) {
	for _, name := range names(gone) {
		at := place(*list, name)
		*list = slices.Clip(slices.Concat((*list)[:at], (*list)[at+1:]))
	}
}

func place(list []string, name string) int {
	at := slices.Index(list, name)
	if at < 0 {
		panic("pycompat: the table has no name " + name + " to change at")
	}
	return at
}

// The lists of names of 0.11.0, separated by spaces.
const (
	firstRequest = "request_id prompt_token_ids mm_features sampling_params pooling_params eos_token_id arrival_time lora_request " +
		"cache_salt data_parallel_rank prompt_embeds client_index current_wave priority trace_headers"
	firstOutput = "request_id new_token_ids new_logprobs new_prompt_logprobs_tensors pooling_output finish_reason stop_reason " +
		"events kv_transfer_params trace_headers num_cached_tokens"
	firstOutputs  = "engine_index outputs scheduler_stats timestamp utility_output finished_requests wave_complete start_wave"
	firstSampling = "n best_of _real_n presence_penalty frequency_penalty repetition_penalty temperature top_p top_k min_p seed " +
		"stop stop_token_ids ignore_eos max_tokens min_tokens logprobs prompt_logprobs detokenize skip_special_tokens " +
		"spaces_between_special_tokens logits_processors include_stop_str_in_output truncate_prompt_tokens output_kind " +
		"output_text_buffer_length _all_stop_token_ids structured_outputs guided_decoding logit_bias allowed_token_ids extra_args " +
		"bad_words _bad_words_token_ids"
	firstPooling = "truncate_prompt_tokens dimensions normalize activation softmax step_tag_id returned_token_ids task " +
		"requires_token_ids extra_kwargs output_kind"
	firstLoRA = "lora_name lora_int_id lora_path lora_local_path long_lora_max_len base_model_name tensorizer_config_dict"
)
