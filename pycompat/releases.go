package pycompat

import (
	"iter"
	"slices"
	"strings"
)

// Fields are the names of the fields of one of vLLM's classes, in wire order and
// separated by spaces. It is a string so that a [Generation] can be compared.
type Fields string

// All yields the names in order.
func (f Fields) All() iter.Seq[string] { return strings.FieldsSeq(string(f)) }

// Names returns the names in order.
func (f Fields) Names() []string { return strings.Fields(string(f)) }

// Index returns the position of a name, -1 if there is none.
func (f Fields) Index(name string) int {
	i := 0
	for n := range f.All() {
		if n == name {
			return i
		}
		i++
	}
	return -1
}

// Has says whether there is a field of that name.
func (f Fields) Has(name string) bool { return f.Index(name) >= 0 }

// insert puts names, separated by spaces, in front of the field before. With an
// empty one, or one that is not there, they go to the end.
func (f *Fields) insert(before, names string) {
	list := f.Names()
	at := slices.Index(list, before)
	if at < 0 {
		at = len(list)
	}
	*f = Fields(strings.Join(slices.Insert(list, at, strings.Fields(names)...), " "))
}

func (f *Fields) drop(names ...string) {
	*f = Fields(strings.Join(slices.DeleteFunc(f.Names(), func(n string) bool { return slices.Contains(names, n) }), " "))
}

// What 0.11.0 has.
const (
	requestFields Fields = "request_id prompt_token_ids mm_features sampling_params pooling_params eos_token_id arrival_time lora_request " +
		"cache_salt data_parallel_rank prompt_embeds client_index current_wave priority trace_headers"
	outputFields Fields = "request_id new_token_ids new_logprobs new_prompt_logprobs_tensors pooling_output finish_reason stop_reason " +
		"events kv_transfer_params trace_headers num_cached_tokens"
	outputsFields Fields = "engine_index outputs scheduler_stats timestamp utility_output finished_requests wave_complete start_wave"
	samplingNames Fields = "n best_of _real_n presence_penalty frequency_penalty repetition_penalty temperature top_p top_k min_p seed " +
		"stop stop_token_ids ignore_eos max_tokens min_tokens logprobs prompt_logprobs detokenize skip_special_tokens " +
		"spaces_between_special_tokens logits_processors include_stop_str_in_output truncate_prompt_tokens output_kind " +
		"output_text_buffer_length _all_stop_token_ids structured_outputs guided_decoding logit_bias allowed_token_ids extra_args " +
		"bad_words _bad_words_token_ids"
	poolingFields Fields = "truncate_prompt_tokens dimensions normalize activation softmax step_tag_id returned_token_ids task " +
		"requires_token_ids extra_kwargs output_kind"
	loraFields Fields = "lora_name lora_int_id lora_path lora_local_path long_lora_max_len base_model_name tensorizer_config_dict"
)
