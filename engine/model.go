package engine

import (
	"fmt"
	"slices"

	"github.com/ringcache/ringcache/serde"
)

// Model describes the model, so that the client can verify requests. For LLaVA and
// Qwen2-VL, Modality of preprocess returns what items look like.
type Model struct {
	// VocabSize is the number of tokens; ids are below. A larger one fails in the
	// workers, and the engine with them.
	VocabSize int
	// MaxLogprobs is the engine's --max-logprobs: 0 is vLLM's default of 20, -1 the
	// whole vocabulary.
	MaxLogprobs int
	// MaxModelLen and MaxBatchedTokens are the engine's max_model_len and
	// max_num_batched_tokens, if it does not report them (before vLLM 0.20 and 0.27).
	MaxModelLen, MaxBatchedTokens int
	// Modalities are the kinds of items that the model takes, by their names in
	// vLLM: "image".
	Modalities map[string]Modality
}

// Modality is what items of one kind look like. vLLM's engine does not check
// them: wrong rows give wrong tokens, or end the engine.
type Modality struct {
	// Elems are the elems of an item, all of them.
	Elems []ElemSpec
	// Tokens returns the number of placeholder tokens that an item takes. The item
	// has passed Elems; it must not be written to, nor kept.
	Tokens func(*serde.Item) (int, error)
	// Placeholder is the token that a prompt has in the item's places; nil if it may
	// be any.
	Placeholder *uint32
	// MaxTokens is the largest number of tokens that an item can have, by the
	// model's own limits. The engine never runs an item that is larger than that and
	// than a batch (max_num_batched_tokens). 0: none is larger than a batch.
	MaxTokens int
}

// ElemSpec is what one elem of an item looks like: a tensor.
type ElemSpec struct {
	Key   string
	DType serde.DType // of the tensor
	// Shape has -1 where any length will do.
	Shape []int
	Field serde.FieldKind // how the items of a batch are put together
}

// validate reports what is wrong with the model.
func (m Model) validate() error {
	if m.VocabSize < 1 {
		return fmt.Errorf("%w: Model.VocabSize is %d; it guards the engine against tokens outside of the vocabulary",
			errInvalid, m.VocabSize)
	}
	if m.MaxLogprobs < -1 || m.MaxModelLen < 0 || m.MaxBatchedTokens < 0 {
		return fmt.Errorf("%w: Model: MaxLogprobs %d, MaxModelLen %d, MaxBatchedTokens %d",
			errInvalid, m.MaxLogprobs, m.MaxModelLen, m.MaxBatchedTokens)
	}
	for name, d := range m.Modalities {
		if d.Tokens == nil || len(d.Elems) == 0 {
			return fmt.Errorf("%w: modality %q needs Elems and Tokens", errInvalid, name)
		}
	}
	return nil
}

// defaultMaxLogprobs is that of vLLM (vllm/config/model.py, max_logprobs).
const defaultMaxLogprobs = 20

func (m Model) maxLogprobs() int {
	switch m.MaxLogprobs {
	case 0:
		return min(defaultMaxLogprobs, m.VocabSize)
	case -1:
		return m.VocabSize
	}
	return min(m.MaxLogprobs, m.VocabSize)
}

// tokens verifies an item and returns its number of placeholder tokens.
func (d Modality) tokens(it *serde.Item) (int, error) {
	for _, spec := range d.Elems {
		e, ok := it.Lookup(spec.Key)
		if !ok {
			return 0, fmt.Errorf("it has no elem %q", spec.Key)
		}
		if err := spec.check(e); err != nil {
			return 0, err
		}
	}
	if len(it.Elems) != len(d.Elems) {
		return 0, fmt.Errorf("it has %d elems, not %d", len(it.Elems), len(d.Elems))
	}
	return d.Tokens(it)
}

func (s ElemSpec) check(e *serde.Elem) error {
	t, ok := e.Data.(*serde.Tensor)
	switch {
	case !ok || t == nil:
		return fmt.Errorf("elem %q is %T, not a tensor", e.Key, e.Data)
	case t.DType != s.DType:
		return fmt.Errorf("elem %q is of %s, not %s", e.Key, t.DType, s.DType)
	case e.Field.Kind != s.Field:
		return fmt.Errorf("elem %q is %s, not %s", e.Key, e.Field.Kind, s.Field)
	}
	if !slices.EqualFunc(t.Shape, s.Shape, func(got, want int) bool { return got == want || want < 0 && got >= 0 }) {
		return fmt.Errorf("elem %q has the shape %v, not %v", e.Key, t.Shape, s.Shape)
	}
	n, err := t.NBytes()
	if err == nil && n != len(t.Data) {
		err = fmt.Errorf("elem %q has %d bytes, not %d", e.Key, len(t.Data), n)
	}
	return err
}
