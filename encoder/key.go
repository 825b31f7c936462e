package encoder

import (
	"errors"
	"fmt"
	"strings"
)

// Identifier returns the identifier of an item's feature (vllm/v1/engine/input_processor.py). If the encoder
// itself is adapted by LoRAs (enable_tower_connector_lora), one image has another output for each: lora is the
// name of the request's LoRA then. In all other cases it must be empty, and the identifier is the mm_hash.
//
// Caches of processed items go by the mm_hash, caches of outputs by the identifier.
func Identifier(lora, mmHash string) string {
	if lora == "" {
		return mmHash
	}
	return lora + ":" + mmHash
}

// ErrCounter reports an identifier that counts items instead of identifying them.
var ErrCounter = errors.New("encoder: the identifier is a counter, and not content")

// modalities are all that vLLM knows (vllm/multimodal/parse.py).
var modalities = []string{"image", "video", "audio", "vision_chunk"}

// counterForm returns what an identifier is if nobody hashed the item (_process_mm_uuids in vllm/renderers/base.py
// from 0.17.0 on, _maybe_build_mm_uuids in vllm/v1/engine/*processor.py before), else "".
func counterForm(identifier string) string {
	item, number, ok := cutNumber(identifier)
	if !ok {
		return ""
	}
	for at := 0; at < len(item); { // a LoRA in front can have any name
		if rendererItem(item[at:]) {
			return "the number of an item in one frontend"
		}
		colon := strings.IndexByte(item[at:], ':')
		if colon < 0 {
			break
		}
		at += colon + 1
	}
	if len(number) > 1 && number[0] == '0' {
		return ""
	}
	for _, m := range modalities {
		if strings.HasSuffix(item, "-"+m) {
			return "the id of a request and the number of the item in it"
		}
	}
	return ""
}

// cutNumber splits "item-12" into "item" and "12".
func cutNumber(text string) (item, number string, ok bool) {
	item = strings.TrimRight(text, "0123456789")
	number = text[len(item):]
	return strings.TrimSuffix(item, "-"), number, number != "" && strings.HasSuffix(item, "-")
}

// rendererItem reports whether text is "renderer0-mm-1-image": the number of the frontend may be missing, and
// the modality have any name.
func rendererItem(text string) bool {
	rest, ok := strings.CutPrefix(text, "renderer")
	if !ok {
		return false
	}
	unsigned := strings.TrimPrefix(rest, "-") // a frontend that has no number is -1
	after, ok := strings.CutPrefix(strings.TrimLeft(rest, "0123456789"), "-mm-")
	if !ok {
		if after, ok = strings.CutPrefix(strings.TrimLeft(unsigned, "0123456789"), "-mm-"); !ok {
			return false
		}
	}
	modality := strings.TrimLeft(after, "0123456789")
	return len(modality) < len(after) && len(modality) > 1 && modality[0] == '-'
}

// CheckIdentifier reports an identifier under which nothing may be stored for other engines, or looked up, by
// [ErrCounter]: one that an engine made by counting, because its processor cache and its prefix cache are
// both off. After a restart, and in any other engine, the same identifier is another item's, and its
// embeddings would be used without an error.
//
// The forms are `renderer0-mm-1-image-0`, in 0.17 without the first number, and, before vLLM 0.17.0, `<id of
// the request>-image-0`. Hashes of content are fine, and so are identifiers that users choose
// (multi_modal_uuids), unless they end in "-", a modality, "-", and a number: these can't be told from the
// older form. An empty identifier fails with fs.ErrInvalid.
// See docs/decisions.md, "An identifier that may be a counter is refused".
func CheckIdentifier(identifier string) error {
	if identifier == "" {
		return fmt.Errorf("%w: the identifier is empty", errInvalid)
	}
	if what := counterForm(identifier); what != "" {
		return fmt.Errorf("%w: %s is %s, and in another engine it is another item: turn the engine's processor cache (mm_processor_cache_gb) "+
			"or its prefix caching on, or give items UUIDs that don't end so", ErrCounter, quote(identifier), what)
	}
	return nil
}

// quote is the text in an error, which may be long.
func quote(text string) string {
	if len(text) > 200 {
		return fmt.Sprintf("%q and %d bytes more", strings.ToValidUTF8(text[:200], "?"), len(text)-200)
	}
	return fmt.Sprintf("%q", text)
}
