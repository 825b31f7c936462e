package serde

import "github.com/ringcache/ringcache/pycompat"

// item writes a MultiModalKwargsItem in the form of the generation
// (vllm/v1/serial_utils.py). modality stands in for an item that has none.
func (e *encoder) item(it *Item, modality string) {
	if it == nil {
		e.invalid("item", "it is a nil *Item")
		return
	}
	form := e.gen.ItemForm
	if form == pycompat.ItemMap {
		e.mapLen(len(it.Elems))
	} else {
		if it.Modality != "" {
			modality = it.Modality
		}
		if modality == "" || len(it.Elems) == 0 {
			e.invalid("item", "vLLM %s needs a Modality and at least one elem", e.gen.Version)
			return
		}
		e.array(len(it.Elems))
	}
	if k, dup := duplicateKey(it.Elems); dup {
		e.invalid("item", "two elems have the key %.64q", k)
		return
	}
	for i := range it.Elems {
		el := &it.Elems[i]
		if e.err != nil {
			return
		}
		e.key = el.Key
		if form == pycompat.ItemMap {
			e.str(el.Key)
			e.mapLen(2)
		} else {
			e.mapLen(4)
			e.str("modality")
			e.str(modality)
			e.str("key")
			e.str(el.Key)
		}
		e.str("data")
		e.data(el.Data)
		e.str("field")
		e.field(&el.Field)
	}
	e.key = ""
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
			e.array(1 + args)
			e.str(f.Kind.String())
			return
		}
		e.array(2)
		e.str(f.Kind.String())
		e.mapLen(1 + args)
		e.str("keep_on_cpu")
		e.boolean(f.KeepOnCPU)
	}
	name := func(s string) {
		if keyed {
			e.str(s)
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
		e.integer(int64(f.Dim))
	case Shared:
		if f.BatchSize < 0 {
			e.invalid("field", "BatchSize is %d", f.BatchSize)
			return
		}
		head(1)
		name("batch_size")
		e.integer(int64(f.BatchSize))
	default:
		e.invalid("field", "there is no %s", f.Kind)
	}
}

func (e *encoder) slices(f *Field) {
	e.array(len(f.Slices))
	for i, list := range f.Slices {
		switch {
		case f.Nested:
			e.array(len(list))
		case len(list) != 1:
			e.invalid("field", "Slices[%d] has %d slices; a list that is not Nested has one each", i, len(list))
			return
		}
		for _, s := range list {
			e.array(3)
			e.bound(s.Start)
			e.bound(s.Stop)
			e.bound(s.Step)
		}
	}
}

func (e *encoder) bound(b Bound) {
	if !b.Set {
		e.null()
		return
	}
	e.integer(b.N)
}
