package pycompat

// HashRules says what of a media item vLLM hashes, and in what form
// (vllm/multimodal/hasher.py).
type HashRules struct {
	// Framed says that every part of the stream has a length, and every value a
	// tag. Otherwise names and values are simply joined.
	Framed bool
	// Sorted says that keyword arguments are hashed in order of their names.
	// Otherwise in the order of the call.
	Sorted bool
	// BareNone says that None contributes nothing but its name. Otherwise its
	// pickle follows. Framed streams have a tag of their own for it.
	BareNone bool
	// Scalar0D says that an array without dimensions is hashed as the Python
	// number it holds. Otherwise it is an error.
	Scalar0D bool
	// OriginalBytes says that an image which came from a file is hashed by the
	// bytes of the file. Otherwise by its pixels.
	OriginalBytes bool
	// IOConfig says that the way an image was converted on loading is hashed
	// with those bytes.
	IOConfig bool
	// VideoBytes says that a video which came from a file is hashed by its
	// frames or the bytes of the file, whichever is shorter, the bytes when
	// equal. TorchVideo says so for frames that are a torch tensor.
	VideoBytes, TorchVideo bool
	// LenientEXIF says that a malformed EXIF block is ignored. Otherwise it is
	// an error.
	LenientEXIF bool
	// Algorithms says that sha256 and sha512 can be chosen. Otherwise there is
	// blake3 only.
	Algorithms bool
	// TokenizerKwargs says that the arguments of the tokenizer are part of the
	// key (vllm/multimodal/processing*).
	TokenizerKwargs bool
	// RawItems says that an item is hashed in the form it was loaded in also
	// where the request names no UUIDs for its modality. Otherwise OriginalBytes
	// holds only for modalities with UUIDs.
	RawItems bool
	// NestedFactors says that the arguments of media loading and of the
	// processor are hashed as one map each. Otherwise those of the processor
	// are hashed one by one beside the item, and those of loading not at all.
	NestedFactors bool
}

// CacheRules says how the mirrored LRU caches of the frontend (P0) and the
// engine (P1) behave (vllm/multimodal/cache.py and cache/, vllm/utils/cache.py).
type CacheRules struct {
	// Touch says that all items of a request are touched before the first is
	// got.
	Touch bool
	// GhostTouch says that the touch of an absent key leaves an entry in the
	// order of use that has no value; eviction that comes across one never
	// returns.
	GhostTouch bool
	// PutIfFits says that an item larger than the cache is passed on without
	// being stored. Otherwise it fails the request.
	PutIfFits bool
	// MissError says that an engine which misses items answers with their keys.
	// Otherwise it stops working.
	MissError bool
	// FreshWins says that an item which arrives with data replaces the cached
	// one of its key. Otherwise the cached one is used and the data dropped.
	FreshWins bool
	// ExternalLBAlone says that external load balancing is enough for a
	// frontend to share a cache with its engine. Otherwise there must be a
	// single API server too (vllm/multimodal/registry.py).
	ExternalLBAlone bool
}

// ParamRules says which parameters a request can have, and in what form
// (vllm/sampling_params.py, vllm/pooling_params.py, vllm/tasks.py,
// vllm/lora/request.py).
type ParamRules struct {
	// Sampling are the fields of SamplingParams, a map by name.
	Sampling Fields
	// MaxTemperature is the highest temperature, 0 where there is no bound.
	MaxTemperature float64
	// ScoreArray says that prompt_logprob_token_ids is an array of two
	// dimensions. Otherwise it is a list.
	ScoreArray bool
	// Pooling are the fields of PoolingParams, an array.
	Pooling Fields
	// PoolingTasks are the tasks that those can name.
	PoolingTasks Fields
	// PoolingSkip says that skip_reading_prefix_cache of PoolingParams must not
	// be None.
	PoolingSkip bool
	// LoRA are the fields of LoRARequest, an array.
	LoRA Fields
}
