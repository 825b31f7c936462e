package serde

import "github.com/ringcache/ringcache/pycompat"

// Names in elems and fields, as they are encoded.
const (
	textModality = "\xa8modality"
	textKey      = "\xa3key"
	textData     = "\xa4data"
	textField    = "\xa5field"
	textKeep     = "\xabkeep_on_cpu"
)

// item writes a MultiModalKwargsItem in the form of the generation
// (vllm/v1/serial_utils.py).
func (e *encoder) item(it *Item) {
	if it == nil {
		e.Invalid("item", "it is a nil *Item")
		return
	}
	form := e.gen.ItemForm
	if form == pycompat.ItemMap {
		e.Map(len(it.Elems))
	} else {
		if it.Modality == "" || len(it.Elems) == 0 {
			e.Invalid("item", "vLLM %s needs a Modality and at least one elem", e.gen.Version)
			return
		}
		e.Array(len(it.Elems))
	}
	if k, dup := duplicateKey(it.Elems); dup {
		e.Invalid("item", "two elems have the key %.64q", k)
		return
	}
	for i := range it.Elems {
		el := &it.Elems[i]
		if e.Err() != nil {
			return
		}
		e.Elem = el.Key
		if form == pycompat.ItemMap {
			e.Text(el.Key)
			e.Literal("\x82" + textData)
		} else {
			e.Literal("\x84" + textModality)
			e.Text(it.Modality)
			e.Literal(textKey)
			e.Text(el.Key)
			e.Literal(textData)
		}
		e.data(el.Data)
		e.Literal(textField)
		if form == pycompat.ItemPositional {
			e.positionalField(&el.Field)
		} else {
			e.field(&el.Field)
		}
	}
	e.Elem = ""
}

func duplicateKey(elems []Elem) (string, bool) {
	if len(elems) <= smallItem {
		for i := range elems {
			for j := range elems[:i] {
				if elems[i].Key == elems[j].Key {
					return elems[i].Key, true
				}
			}
		}
		return "", false
	}
	seen := make(map[string]struct{}, len(elems))
	for i := range elems {
		k := elems[i].Key
		if _, ok := seen[k]; ok {
			return k, true
		}
		seen[k] = struct{}{}
	}
	return "", false
}

// smallItem is the number of elems up to which comparing each with each is
// cheaper than a map.
const smallItem = 16

// field writes a field: [name, {named arguments}].
func (e *encoder) field(f *Field) {
	switch e.check(f); f.Kind {
	case Batched:
		e.Literal("\x92\xa7batched\x81" + textKeep)
		e.Bool(f.KeepOnCPU)
	case Flat:
		e.Literal("\x92\xa4flat\x83" + textKeep)
		e.Bool(f.KeepOnCPU)
		e.Literal("\xa6slices")
		e.slices(f)
		e.Literal("\xa3dim")
		e.Int(int64(f.Dim))
	case Shared:
		e.Literal("\x92\xa6shared\x82" + textKeep)
		e.Bool(f.KeepOnCPU)
		e.Literal("\xaabatch_size")
		e.Int(int64(f.BatchSize))
	}
}

// positionalField writes a field of the positional form: [name, arguments...].
func (e *encoder) positionalField(f *Field) {
	switch e.check(f); f.Kind {
	case Batched:
		e.Literal("\x91\xa7batched")
	case Flat:
		e.Literal("\x93\xa4flat")
		e.slices(f)
		e.Int(int64(f.Dim))
	case Shared:
		e.Literal("\x92\xa6shared")
		e.Int(int64(f.BatchSize))
	}
}

func (e *encoder) check(f *Field) {
	switch {
	case f.Kind > Shared:
		e.Invalid("field", "there is no %s", f.Kind)
	case f.Kind == Shared && f.BatchSize < 0:
		e.Invalid("field", "BatchSize is %d", f.BatchSize)
	}
}

func (e *encoder) slices(f *Field) {
	e.Array(len(f.Slices))
	for i, list := range f.Slices {
		switch {
		case f.Nested:
			e.Array(len(list))
		case len(list) != 1:
			e.Invalid("field", "Slices[%d] has %d slices; a list that is not Nested has one each", i, len(list))
			return
		}
		for _, s := range list {
			e.Array(3)
			e.bound(s.Start)
			e.bound(s.Stop)
			e.bound(s.Step)
		}
	}
}

func (e *encoder) bound(n *int64) {
	if n == nil {
		e.Nil()
		return
	}
	e.Int(*n)
}
