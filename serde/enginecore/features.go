package enginecore

import (
	"github.com/ringcache/ringcache/internal/codec"
	"github.com/ringcache/ringcache/internal/pyvalue"
	"github.com/ringcache/ringcache/serde"
)

// Feature is vLLM's MultiModalFeatureSpec: one multimodal input of a request
// and its place in the prompt (vllm/multimodal/inputs.py, all releases).
type Feature struct {
	Data *serde.Item // nil for None
	// Address may stand in place of Data. It is encoded as the item that [serde.NewAddressItem]
	// makes of it and of Modality.
	Address    *serde.Address
	Modality   string
	Identifier string
	// Offset and Length are the placeholder range in tokens.
	Offset, Length int
	// IsEmbed, a bool tensor or nil, marks which tokens of the range take
	// embeddings.
	IsEmbed *serde.Tensor
	// MMHash is nil for None. Generations without FeatureHash have no such
	// field; it is not written for them.
	MMHash *string
}

func (w *writer) features(fs []Feature) {
	w.Array(len(fs))
	for i := range fs {
		w.feature(&fs[i])
	}
}

func (w *writer) feature(f *Feature) {
	if f.Offset < 0 || f.Length < 0 {
		w.Invalid("feature", "its range is %d+%d", f.Offset, f.Length)
		return
	}
	if f.IsEmbed != nil && f.IsEmbed.DType != "bool" {
		w.Invalid("feature", "IsEmbed is a tensor of %s, must be bool", f.IsEmbed.DType)
		return
	}
	n := 4
	if w.c.gen.FeatureHash {
		n++
	}
	w.Map(n)
	w.Text("data")
	switch {
	case f.Address != nil && f.Data != nil:
		w.Invalid("feature", "it has both Data and an Address; give one of them")
		return
	case f.Address != nil:
		w.Append(func(doc []byte) ([]byte, error) {
			return serde.AppendAddress(doc, *f.Address, f.Modality, serde.Options{Generation: w.c.gen})
		})
	case f.Data != nil:
		w.item(f.Data, f.Modality)
	default:
		w.Nil()
	}
	w.Text("modality")
	w.Text(f.Modality)
	w.Text("identifier")
	w.Text(f.Identifier)
	w.Text("mm_position")
	w.Map(3)
	w.Text("offset")
	w.Int(int64(f.Offset))
	w.Text("length")
	w.Int(int64(f.Length))
	w.Text("is_embed")
	w.tensor(f.IsEmbed)
	if w.c.gen.FeatureHash {
		w.Text("mm_hash")
		w.text(f.MMHash)
	}
}

// tensor writes None for nil.
func (w *writer) tensor(t *serde.Tensor) {
	if t == nil {
		w.Nil()
		return
	}
	pyvalue.WriteTensor(w.Encoder, t)
}

// item writes an item; modality stands in for an item that has none.
func (w *writer) item(it *serde.Item, modality string) {
	if it.Modality == "" {
		it = &serde.Item{Modality: modality, Elems: it.Elems}
	}
	w.Splice(func(frames [][]byte) ([][]byte, error) {
		return serde.AppendItem(frames, it, serde.Options{Generation: w.c.gen, InlineThreshold: w.c.inline})
	})
}

// text writes None for nil.
func (w *writer) text(s *string) { codec.WriteOptional(w.Encoder, s, w.Text) }
