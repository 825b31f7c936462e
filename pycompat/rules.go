package pycompat

// CountRule is how writer and readers count the uses of a chunk
// (vllm/distributed/device_communicators/shm_object_storage.py).
type CountRule uint8

const (
	// CountPerUse (vLLM 0.11): the writer counts one for every put or cached
	// look-up, each reader one for every get. There is no touch.
	CountPerUse CountRule = iota + 1
	// CountTouch (vLLM 0.12 to 0.31): as CountPerUse, and touch counts too: on
	// the writer when the key is present, on a reader when every reader has
	// read the chunk at least once.
	CountTouch
	// CountPerAddress (vLLM 0.32 on): as CountPerUse. Touch counts nothing; on
	// the writer it only protects a chunk from being freed until the touches
	// are released.
	CountPerAddress
)

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

// HashRules is what vLLM hashes of a media item, and in what form
// (vllm/multimodal/hasher.py).
type HashRules struct {
	// Framed is true where every part of the stream has a length, and every value
	// a tag. Elsewhere names and values are simply joined.
	Framed bool
	// Sorted is true where keyword arguments are hashed in order of their names.
	// Elsewhere in the order of the call.
	Sorted bool
	// BareNone is true where None contributes nothing but its name. Elsewhere its
	// pickle follows. Framed streams have a tag of their own for it.
	BareNone bool
	// Scalar0D is true where an array without dimensions is hashed as the Python
	// number in it. Elsewhere it is an error.
	Scalar0D bool
	// OriginalBytes is true where an image that came from a file is hashed by the
	// bytes of the file. Elsewhere by its pixels.
	OriginalBytes bool
	// IOConfig is true where the way an image was converted on loading is hashed
	// with those bytes.
	IOConfig bool
	// VideoBytes is true where a video that came from a file is hashed by its
	// frames or the bytes of the file, whichever is shorter, the bytes when
	// equal. TorchVideo is true where that holds for frames in a torch tensor.
	VideoBytes, TorchVideo bool
	// Algorithms is true where sha256 and sha512 can be chosen. Elsewhere there is
	// blake3 only.
	Algorithms bool
	// TokenizerKwargs is true where the arguments of the tokenizer are part of the
	// key (vllm/multimodal/processing*).
	TokenizerKwargs bool
	// RawItems is true where an item is hashed in the form it was loaded in also
	// if the request has no UUIDs for its modality. Elsewhere OriginalBytes
	// holds only for modalities with UUIDs.
	RawItems bool
	// NestedFactors is true where the arguments of media loading and of the
	// processor are hashed as one map each. Elsewhere those of the processor
	// are hashed one by one beside the item, and those of loading not at all.
	NestedFactors bool
}
