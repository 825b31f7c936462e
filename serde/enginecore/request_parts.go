package enginecore

import (
	"slices"

	"github.com/ringcache/ringcache/internal/codec"
	"github.com/ringcache/ringcache/internal/pyvalue"
)

// loraFields has the fields of LoRARequest that are more than None to us.
var loraFields = map[string]func(*writer, *LoRA){
	"lora_name":         func(w *writer, l *LoRA) { w.Text(l.Name) },
	"lora_int_id":       func(w *writer, l *LoRA) { w.Int(int64(l.ID)) },
	"lora_path":         func(w *writer, l *LoRA) { w.Text(l.Path) },
	"base_model_name":   func(w *writer, l *LoRA) { codec.WriteOptional(w.Encoder, l.BaseModelName, w.Text) },
	"load_inplace":      func(w *writer, l *LoRA) { w.Bool(l.LoadInPlace) },
	"is_3d_lora_weight": func(w *writer, l *LoRA) { w.Bool(l.Is3DWeight) },
}

func (w *writer) lora(l LoRA) {
	names, version := w.c.gen.Params.LoRA, w.c.gen.Version
	switch {
	case l.ID < 1:
		w.Invalid("field lora_request", "its ID is %d, must be at least 1", l.ID)
	case l.Path == "":
		w.Invalid("field lora_request", "it has no Path")
	case l.LoadInPlace && !slices.Contains(names, "load_inplace"):
		w.Invalid("field lora_request", "vLLM %s has no LoadInPlace; leave it unset", version)
	case l.Is3DWeight && !slices.Contains(names, "is_3d_lora_weight"):
		w.Invalid("field lora_request", "vLLM %s has no Is3DWeight; leave it unset", version)
	}
	w.Array(len(names))
	for _, name := range names {
		if write, known := loraFields[name]; known {
			write(w, &l)
		} else {
			w.Nil()
		}
	}
}

func (w *writer) kvHints(h KVHints) {
	w.Map(3)
	w.Text("protocol_version")
	w.Text(h.ProtocolVersion)
	w.Text("message_id")
	w.Text(h.MessageID)
	w.Text("actions")
	w.Array(len(h.Actions))
	for i := range h.Actions {
		a := &h.Actions[i]
		w.Map(4)
		w.Text("action_id")
		w.Text(a.ID)
		w.Text("action_type")
		w.Text(a.Type)
		w.Text("action_version")
		w.Text(a.Version)
		w.Text("payload")
		pyvalue.Write(w.Encoder, "field kv_hints", a.Payload)
	}
}
