package mmhash

import (
	"encoding/json"
	"math/big"
	"slices"
)

// Identity is what vLLM derives the cache key of one media item from
// (vllm/multimodal/processing.py, since 0.15.0 processing/processor.py, since
// 0.17.0 processing/inputs.py).
type Identity struct {
	// ModelID is the model's name as the server was started with.
	ModelID string
	// Modality is "image", "video", "audio" or another that the model takes.
	Modality string
	// Item is the medium as it was loaded. It may be nil if there is a UUID.
	// Entry.Value lists the types.
	Item any
	// UUID is the client's own name of the item; an empty one is none. vLLM
	// believes it: alone it is the key as it stands, so that any client which
	// names the same UUID is served the same item. See [NativeKey].
	UUID string
	// HasUUIDs reports that the request contains a list of UUIDs for the modality,
	// be they all null, as every chat completion does. vLLM 0.13.0 to 0.26.0 hash
	// the file of an [EncodedImage] only then, and its pixels otherwise. Other
	// releases make no difference.
	HasUUIDs bool
	// ProcessorKwargs is the request's mm_processor_kwargs.
	ProcessorKwargs []Entry
	// TokenizerKwargs are the arguments of the tokenizer; part of the key up to
	// 0.16.0.
	TokenizerKwargs []Entry
	// MediaIOKwargs is media_io_kwargs, a dict for each modality; part of the
	// key from 0.30.0 on.
	MediaIOKwargs []Entry
}

// scoped names the entries of mm_processor_kwargs that are for one modality
// only.
var scoped = map[string]string{"image": "images_kwargs", "video": "videos_kwargs", "audio": "audio_kwargs"}

// Key returns the cache key of an item: its hash together with all arguments
// that make a difference to what the processor makes of it, or the UUID as it
// stands if there are no such arguments. The order of arguments matters: of
// processor and tokenizer arguments before 0.16.0, of all in nested maps.
//
// Some models of vLLM hash the key once more, see [Hasher.Rehash].
func (h *Hasher) Key(id Identity) (string, error) {
	var local [8]Entry
	args := append(local[:0], Entry{"model_id", id.ModelID}, Entry{Key: id.Modality})
	if h.s.rules.NestedFactors {
		args = id.appendNested(args)
	} else {
		args = append(args, id.ProcessorKwargs...)
		if h.s.rules.TokenizerKwargs {
			args = append(args, id.TokenizerKwargs...)
		}
	}
	if id.UUID != "" {
		if len(args) == 2 {
			return id.UUID, nil
		}
		args[1].Value = id.UUID
		return h.Hex(args...)
	}
	if id.Item == nil {
		return "", &ValueError{id.Modality, "an item or a UUID is needed", errInvalid}
	}
	args[1].Value = id.Item
	if m, ok := id.Item.(*EncodedImage); ok && m != nil && !h.s.rules.RawItems && !id.HasUUIDs {
		image, err := m.decoded()
		if err != nil {
			return "", err
		}
		args[1].Value = image
	}
	return h.Hex(args...)
}

// appendNested appends the arguments that are nested in a map each, as far as
// they concern the modality.
func (id *Identity) appendNested(args []Entry) []Entry {
	io, processor := id.MediaIOKwargs, id.ProcessorKwargs
	if own, ok := scoped[id.Modality]; ok {
		i := slices.IndexFunc(io, func(e Entry) bool { return e.Key == id.Modality })
		if i < 0 || falsy(io[i].Value) {
			io = nil
		} else {
			io = io[i : i+1]
		}
		foreign := func(e Entry) bool {
			return e.Key != own && (e.Key == scoped["image"] || e.Key == scoped["video"] || e.Key == scoped["audio"])
		}
		if slices.ContainsFunc(processor, foreign) {
			processor = slices.DeleteFunc(slices.Clone(processor), foreign)
		}
	}
	if len(io) > 0 {
		args = append(args, Entry{"media_io_kwargs", io})
	}
	if len(processor) > 0 {
		args = append(args, Entry{"mm_processor_kwargs", processor})
	}
	return args
}

// falsy reports whether Python takes the value for false.
func falsy(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case []Entry:
		return len(v) == 0
	case []any:
		return len(v) == 0
	case string:
		return v == ""
	case []byte:
		return len(v) == 0
	case bool:
		return !v
	case int:
		return v == 0
	case int64:
		return v == 0
	case uint64:
		return v == 0
	case *big.Int:
		return v != nil && v.Sign() == 0
	case json.Number:
		n, err := jsonNumber(v)
		return err == nil && falsy(n)
	case float64:
		return v == 0
	}
	return false
}

// Rehash returns the hash of a key with further arguments, as those models do
// whose processor treats each item of a request by arguments of its own. In
// 0.32.0 this is qwen3_vl (fps and num_frames, where these are lists, one element
// for each video), in 0.33.0 also deepseek_vl2 and unlimited_ocr (cropping) and
// h2ovl (use_msac). A key that is a UUID is hashed too.
func (h *Hasher) Rehash(key string, args ...Entry) (string, error) {
	return h.Hex(append([]Entry{{"mm_hash", key}}, args...)...)
}
