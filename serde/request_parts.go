package serde

import (
	"fmt"
	"slices"
)

// loraTable has the fields of LoRARequest that are more than None to us.
var loraTable = map[string]struct {
	encode func(*encoder, *LoRA)
	decode func(*decoder, *LoRA) error
}{
	"lora_name": {
		func(e *encoder, l *LoRA) { e.str(l.Name) },
		func(d *decoder, l *LoRA) (err error) { l.Name, err = d.text("lora_name"); return err },
	},
	"lora_int_id": {
		func(e *encoder, l *LoRA) { e.int(l.ID) },
		func(d *decoder, l *LoRA) (err error) { l.ID, err = d.int("lora_int_id", 1); return err },
	},
	"lora_path": {
		func(e *encoder, l *LoRA) { e.str(l.Path) },
		func(d *decoder, l *LoRA) (err error) { l.Path, err = d.text("lora_path"); return err },
	},
	"base_model_name": {
		func(e *encoder, l *LoRA) { encodeOptional(e, l.BaseModelName, (*encoder).str) },
		func(d *decoder, l *LoRA) (err error) {
			l.BaseModelName, err = optionalValue(d, "base_model_name", d.text)
			return err
		},
	},
	"load_inplace": {
		func(e *encoder, l *LoRA) { e.boolean(l.LoadInPlace) },
		func(d *decoder, l *LoRA) (err error) { l.LoadInPlace, err = d.boolean("load_inplace"); return err },
	},
	"is_3d_lora_weight": {
		func(e *encoder, l *LoRA) { e.boolean(l.Is3DWeight) },
		func(d *decoder, l *LoRA) (err error) { l.Is3DWeight, err = d.boolean("is_3d_lora_weight"); return err },
	},
}

func (e *encoder) lora(l *LoRA) {
	fields := e.gen.Params.LoRA
	switch {
	case l.ID < 1:
		e.invalid("field lora_request", "its ID is %d, must be at least 1", l.ID)
	case l.Path == "":
		e.invalid("field lora_request", "it has no Path")
	case l.LoadInPlace && !slices.Contains(fields, "load_inplace"):
		e.invalid("field lora_request", "vLLM %s has no LoadInPlace; leave it unset", e.gen.Version)
	case l.Is3DWeight && !slices.Contains(fields, "is_3d_lora_weight"):
		e.invalid("field lora_request", "vLLM %s has no Is3DWeight; leave it unset", e.gen.Version)
	}
	names := fields
	e.array(len(names))
	for _, name := range names {
		if f, known := loraTable[name]; known {
			f.encode(e, l)
		} else {
			e.null()
		}
	}
}

func (d *decoder) lora() (*LoRA, error) {
	const what = "lora_request"
	n, err := d.array(what)
	if err != nil {
		return nil, err
	}
	if n < 2 {
		return nil, d.corrupt(what, "a name and an id", fmt.Sprintf("an array of %d", n))
	}
	l := &LoRA{}
	names := d.gen.Params.LoRA
	for i := range n {
		var err error
		if i < len(names) && loraTable[names[i]].decode != nil {
			err = loraTable[names[i]].decode(d, l)
		} else {
			err = d.skip(what)
		}
		if err != nil {
			return nil, err
		}
	}
	return l, nil
}

func (e *encoder) kvHints(h *KVHints) {
	e.mapLen(3)
	e.str("protocol_version")
	e.str(h.ProtocolVersion)
	e.str("message_id")
	e.str(h.MessageID)
	e.str("actions")
	e.array(len(h.Actions))
	for i := range h.Actions {
		a := &h.Actions[i]
		e.mapLen(4)
		e.str("action_id")
		e.str(a.ID)
		e.str("action_type")
		e.str(a.Type)
		e.str("action_version")
		e.str(a.Version)
		e.str("payload")
		e.anything("field kv_hints", a.Payload)
	}
}

func (d *decoder) kvHints() (*KVHints, error) {
	h := &KVHints{}
	err := d.object("kv_hints", []string{"protocol_version", "message_id", "actions"}, func(name string) (bool, error) {
		var err error
		switch name {
		case "protocol_version":
			h.ProtocolVersion, err = d.text(name)
		case "message_id":
			h.MessageID, err = d.text(name)
		case "actions":
			h.Actions, err = d.kvActions()
		default:
			return false, nil
		}
		return true, err
	})
	return h, err
}

func (d *decoder) kvActions() ([]KVHintAction, error) {
	n, err := d.array("actions")
	if err != nil {
		return nil, err
	}
	out := make([]KVHintAction, 0, small(n))
	for range n {
		var a KVHintAction
		err := d.object("action", []string{"action_id", "action_type", "action_version", "payload"}, func(name string) (bool, error) {
			var err error
			switch name {
			case "action_id":
				a.ID, err = d.text(name)
			case "action_type":
				a.Type, err = d.text(name)
			case "action_version":
				a.Version, err = d.text(name)
			case "payload":
				a.Payload, err = d.anyMapOf(name)
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
