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

func (r *reader) kvHints(what string) (*enginecore.KVHints, error) {
	h := &enginecore.KVHints{}
	err := r.Object(what, []string{"protocol_version", "message_id", "actions"}, func(name string) (bool, error) {
		var err error
		switch name {
		case "protocol_version":
			h.ProtocolVersion, err = r.Text(name)
		case "message_id":
			h.MessageID, err = r.Text(name)
		case "actions":
			h.Actions, err = r.kvActions()
		default:
			return false, nil
		}
		return true, err
	})
	return h, err
}

func (r *reader) kvActions() ([]enginecore.KVHintAction, error) {
	n, err := r.Array("actions")
	if err != nil {
		return nil, err
	}
	out := make([]enginecore.KVHintAction, 0, codec.Small(n))
	for range n {
		var a enginecore.KVHintAction
		err := r.Object("action", []string{"action_id", "action_type", "action_version", "payload"}, func(name string) (bool, error) {
			var err error
			switch name {
			case "action_id":
				a.ID, err = r.Text(name)
			case "action_type":
				a.Type, err = r.Text(name)
			case "action_version":
				a.Version, err = r.Text(name)
			case "payload":
				a.Payload, err = pyvalue.ReadMap(r.Decoder, name)
			default:
				return false, nil
			}
			return true, err
		})
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}

func (r *reader) features(string) ([]enginecore.Feature, error) {
	n, err := r.Array("features")
	if err != nil {
		return nil, err
	}
	out := make([]enginecore.Feature, 0, codec.Small(n))
	for range n {
		f, err := r.feature()
		if err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

var (
	featureKeys  = []string{"data", "modality", "identifier", "mm_position"}
	positionKeys = []string{"offset", "length"}
)

func (r *reader) feature() (f enginecore.Feature, err error) {
	err = r.Object("feature", featureKeys, func(name string) (bool, error) {
		var err error
		switch name {
		case "data":
			if !r.Nil() {
				f.Data, err = r.item()
			}
		case "modality":
			f.Modality, err = r.Text(name)
		case "identifier":
			f.Identifier, err = r.Text(name)
		case "mm_position":
			err = r.Object(name, positionKeys, func(name string) (bool, error) { return r.position(&f, name) })
		case "mm_hash":
			if !r.Nil() {
				var s string
				s, err = r.Text(name)
				f.MMHash = &s
			}
		default:
			return false, nil
		}
		return true, err
	})
	return f, err
}

func (r *reader) item() (it *serde.Item, err error) {
	err = r.Splice(func(frames [][]byte, at int) (end int, err error) {
		it, end, err = serde.ReadItem(frames, at, serde.Options{Generation: r.c.gen})
		return end, err
	})
	return it, err
}

func (r *reader) position(f *enginecore.Feature, name string) (known bool, err error) {
	switch name {
	case "offset":
		f.Offset, err = r.IntFrom(name, 0)
	case "length":
		f.Length, err = r.IntFrom(name, 0)
	case "is_embed":
		if r.Nil() {
			return true, nil
		}
		if f.IsEmbed, err = pyvalue.ReadTensor(r.Decoder); err == nil && f.IsEmbed.DType != "bool" {
			err = r.Corrupt(name, "a bool tensor", "one of "+string(f.IsEmbed.DType))
		}
	default:
		return false, nil
	}
	return true, err
}
