package wire

import (
	"fmt"

	"github.com/ringcache/ringcache/internal/codec"
	"github.com/ringcache/ringcache/internal/pyvalue"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/serde/enginecore"
)

// loraFields has the fields of LoRARequest that are more than None to us.
var loraFields = map[string]func(*reader, *enginecore.LoRA, string) error{
	"lora_name": codec.Value(func(l *enginecore.LoRA) *string { return &l.Name }, (*reader).Text),
	"lora_int_id": func(r *reader, l *enginecore.LoRA, name string) (err error) {
		l.ID, err = r.IntFrom(name, 1)
		return err
	},
	"lora_path":         codec.Value(func(l *enginecore.LoRA) *string { return &l.Path }, (*reader).Text),
	"base_model_name":   codec.Optional(func(l *enginecore.LoRA) **string { return &l.BaseModelName }, (*reader).Text),
	"load_inplace":      codec.Value(func(l *enginecore.LoRA) *bool { return &l.LoadInPlace }, (*reader).Bool),
	"is_3d_lora_weight": codec.Value(func(l *enginecore.LoRA) *bool { return &l.Is3DWeight }, (*reader).Bool),
}

func (r *reader) lora(what string) (*enginecore.LoRA, error) {
	n, err := r.Array(what)
	if err != nil {
		return nil, err
	}
	if n < 2 {
		return nil, r.Corrupt(what, "a name and an id", fmt.Sprintf("an array of %d", n))
	}
	l := &enginecore.LoRA{}
	names := r.c.gen.Params.LoRA
	for i := range n {
		if i < len(names) && loraFields[names[i]] != nil {
			err = loraFields[names[i]](r, l, names[i])
		} else {
			err = r.Skip(what)
		}
		if err != nil {
			return nil, err
		}
	}
	return l, nil
}

var readHints = codec.Fields[*reader, enginecore.KVHints]{
	"protocol_version": codec.Value(func(h *enginecore.KVHints) *string { return &h.ProtocolVersion }, (*reader).Text),
	"message_id":       codec.Value(func(h *enginecore.KVHints) *string { return &h.MessageID }, (*reader).Text),
	"actions":          codec.Value(func(h *enginecore.KVHints) *[]enginecore.KVHintAction { return &h.Actions }, codec.ListOf(readAction)),
}.Object("protocol_version", "message_id", "actions")

var readAction = codec.Fields[*reader, enginecore.KVHintAction]{
	"action_id":      codec.Value(func(a *enginecore.KVHintAction) *string { return &a.ID }, (*reader).Text),
	"action_type":    codec.Value(func(a *enginecore.KVHintAction) *string { return &a.Type }, (*reader).Text),
	"action_version": codec.Value(func(a *enginecore.KVHintAction) *string { return &a.Version }, (*reader).Text),
	"payload":        codec.Value(func(a *enginecore.KVHintAction) *map[string]any { return &a.Payload }, (*reader).plainMap),
}.Object("action_id", "action_type", "action_version", "payload")

var readFeature = codec.Fields[*reader, enginecore.Feature]{
	"data":       codec.OrNone(func(f *enginecore.Feature) **serde.Item { return &f.Data }, (*reader).item),
	"modality":   codec.Value(func(f *enginecore.Feature) *string { return &f.Modality }, (*reader).Text),
	"identifier": codec.Value(func(f *enginecore.Feature) *string { return &f.Identifier }, (*reader).Text),
	"mm_position": func(r *reader, f *enginecore.Feature, name string) error {
		return positionFields.Into(r, f, name, "offset", "length")
	},
	"mm_hash": codec.Optional(func(f *enginecore.Feature) **string { return &f.MMHash }, (*reader).Text),
}.Object("data", "modality", "identifier", "mm_position")

var positionFields = codec.Fields[*reader, enginecore.Feature]{
	"offset":   codec.Value(func(f *enginecore.Feature) *int { return &f.Offset }, (*reader).tokens),
	"length":   codec.Value(func(f *enginecore.Feature) *int { return &f.Length }, (*reader).tokens),
	"is_embed": codec.OrNone(func(f *enginecore.Feature) **serde.Tensor { return &f.IsEmbed }, (*reader).mask),
}

var readFeatures = codec.ListOf(readFeature)

func (r *reader) item(string) (it *serde.Item, err error) {
	err = r.Splice(func(frames [][]byte, at int) (end int, err error) {
		it, end, err = serde.ReadItem(frames, at, serde.Options{Generation: r.c.gen})
		return end, err
	})
	return it, err
}

func (r *reader) tokens(what string) (int, error) { return r.IntFrom(what, 0) }

func (r *reader) mask(what string) (*serde.Tensor, error) {
	t, err := pyvalue.ReadTensor(r.Decoder)
	if err == nil && t.DType != "bool" {
		err = r.Corrupt(what, "a bool tensor", "one of "+string(t.DType))
	}
	return t, err
}
