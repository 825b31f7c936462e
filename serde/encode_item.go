package serde

import (
	"github.com/ringcache/ringcache/internal/codec"
	"github.com/ringcache/ringcache/pycompat"
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
			e.Map(2)
		} else {
			e.Map(4)
			e.Text("modality")
			e.Text(it.Modality)
			e.Text("key")
			e.Text(el.Key)
		}
		e.Text("data")
		e.data(el.Data)
		e.Text("field")
		e.field(&el.Field)
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

// field writes a field: [name, {named arguments}] or, in the positional form,
// [name, arguments...].
func (e *encoder) field(f *Field) {
	keyed := e.gen.ItemForm != pycompat.ItemPositional
	head := func(args int) {
		if !keyed {
			e.Array(1 + args)
			e.Text(f.Kind.String())
			return
		}
		e.Array(2)
		e.Text(f.Kind.String())
		e.Map(1 + args)
		e.Text("keep_on_cpu")
		e.Bool(f.KeepOnCPU)
	}
	name := func(s string) {
		if keyed {
			e.Text(s)
		}
	}
	switch f.Kind {
	case Batched:
		head(0)
	case Flat:
		head(2)
		name("slices")
		e.slices(f)
		name("dim")
		e.Int(int64(f.Dim))
	case Shared:
		if f.BatchSize < 0 {
			e.Invalid("field", "BatchSize is %d", f.BatchSize)
			return
		}
		head(1)
		name("batch_size")
		e.Int(int64(f.BatchSize))
	default:
		e.Invalid("field", "there is no %s", f.Kind)
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

func (e *encoder) bound(n *int64) { codec.WriteOptional(e.Encoder, n, e.Int) }
