package enginecore

import "github.com/ringcache/ringcache/pycompat"

// poolingTable is samplingTable for vllm/pooling_params.py.
var poolingTable = map[string]param{
	"truncate_prompt_tokens":    {true, truncation},
	"dimensions":                {true, integer(1, mostCount)},
	"normalize":                 {true, boolean},
	"activation":                {true, boolean},
	"softmax":                   {true, boolean},
	"use_activation":            {true, boolean},
	"step_tag_id":               {true, integer(0, mostTokenID)},
	"returned_token_ids":        {true, tokenIDs},
	"task":                      {true, poolingTask},
	"requires_token_ids":        {form: boolean},
	"skip_reading_prefix_cache": {true, boolean},
	"late_interaction_params":   {true, noForm},
	"late_chunking_params":      {true, noForm},
	"extra_kwargs":              {true, anyMap},
	"output_kind":               {form: integer(finalOnly, finalOnly)},
}

const finalOnly = 2 // RequestOutputKind.FINAL_ONLY

func poolingDefault(name string, g *pycompat.Generation) any {
	switch {
	case name == "output_kind":
		return int64(finalOnly)
	case name == "requires_token_ids":
		return false
	case name == "skip_reading_prefix_cache" && g.Params.PoolingSkip:
		return false // which is what None means to the engine
	}
	return nil
}
