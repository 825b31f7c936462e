package serde

import (
	"fmt"

	"github.com/ringcache/ringcache/internal/codec"
	"github.com/ringcache/ringcache/pycompat"
)

func (d *decoder) item() (*Item, error) {
	if d.gen.ItemForm != pycompat.ItemMap {
		return d.itemList()
	}
	n, err := d.Map("item")
	if err != nil {
		return nil, err
	}
	it := d.newItem(n)
	for range n {
		key, err := d.key(it)
		if err != nil {
			return nil, err
		}
		d.Elem = key
		e, _, err := d.elem(it)
		if err != nil {
			return nil, err
		}
		e.Key = key
		it.Elems = append(it.Elems, e)
		d.Elem = ""
	}
	return it, d.unique(it)
}

// itemList reads the forms that are an array of elems with key and modality.
func (d *decoder) itemList() (*Item, error) {
	n, err := d.Array("item")
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, d.Corrupt("item", "at least one elem", "none")
	}
	it := d.newItem(n)
	for i := range n {
		e, modality, err := d.elem(it)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			it.Modality = modality
		} else if modality != it.Modality {
			return nil, d.Corrupt("item", fmt.Sprintf("the modality %.64q in every elem", it.Modality),
				fmt.Sprintf("%.64q", modality))
		}
		it.Elems = append(it.Elems, e)
		d.Elem = ""
	}
	return it, d.unique(it)
}

// newItem returns an item with room for n elems, or for the first of them.
func (d *decoder) newItem(n int) *Item {
	it := &d.mem.items.take(1)[0]
	it.Elems = d.mem.elems.take(codec.Small(n))[:0]
	return it
}

// key reads the key of the next elem of an item, for which there may be one in the same
// place of the item that was in this memory before.
func (d *decoder) key(it *Item) (string, error) {
	i, at := len(it.Elems), d.Pos()
	if i < cap(it.Elems) {
		last := it.Elems[:i+1][i].Key
		if b, err := d.TextView("key"); err == nil && last != "" && string(b) == last {
			return last, nil
		}
		d.Seek(at)
	}
	return d.Text("key")
}

func (d *decoder) unique(it *Item) error {
	if k, dup := duplicateKey(it.Elems); dup {
		return d.Corrupt("item", "each key once", fmt.Sprintf("%.64q twice", k))
	}
	return nil
}

const (
	seenData = 1 << iota
	seenField
	seenModality
	seenKey
	seenSlices
	seenDim
	seenBatchSize
	seenKeep
)

// once notes in seen that a map has the named key.
func (d *decoder) once(what string, name []byte, seen *int, bit int) error {
	if *seen&bit != 0 {
		return d.Corrupt(what, "each key once", fmt.Sprintf("%.64q twice", name))
	}
	*seen |= bit
	return nil
}

// elem reads the map of the next elem of an item. Its names are fixed: Python raises for others.
func (d *decoder) elem(it *Item) (e Elem, modality string, err error) {
	const what = "elem"
	need := seenData | seenField
	if d.gen.ItemForm != pycompat.ItemMap {
		need |= seenModality | seenKey
	}
	n, err := d.Map(what)
	if err != nil {
		return e, "", err
	}
	seen := 0
	for range n {
		name, err := d.TextView(what)
		if err != nil {
			return e, "", err
		}
		bit := 0
		switch string(name) {
		case "data":
			bit = seenData
		case "field":
			bit = seenField
		case "modality":
			bit = seenModality
		case "key":
			bit = seenKey
		}
		if bit&need == 0 {
			return e, "", d.Corrupt(what, "only the keys of this generation", fmt.Sprintf("%.64q", name))
		}
		if err = d.once(what, name, &seen, bit); err != nil {
			return e, "", err
		}
		switch bit {
		case seenData:
			e.Data, err = d.data(0)
		case seenField:
			e.Field, err = d.field()
		case seenModality:
			modality, err = d.Text("modality")
		case seenKey:
			e.Key, err = d.key(it)
			d.Elem = e.Key
		}
		if err != nil {
			return e, "", err
		}
	}
	if seen != need {
		return e, "", d.Corrupt(what, "all keys of this generation", fmt.Sprintf("%d of them", n))
	}
	return e, modality, nil
}
