package serde

import "fmt"

// ModalityItems are the items of one modality of a request.
type ModalityItems struct {
	Modality string
	Items    []*Item
}

// KwargsItems is vLLM's MultiModalKwargsItems: a map from modality to items, in
// order.
type KwargsItems []ModalityItems

// EncodeItems returns the frames of k. The aux frames alias the Data of its
// tensors, which all must have some. The error wraps [ErrInvalid].
func EncodeItems(k KwargsItems, o Options) (Frames, error) {
	e := newEncoder(o)
	e.items(k)
	return e.filled()
}

// DecodeItems reads KwargsItems, whose tensors are views of f. The error wraps
// [ErrCorrupt] or [ErrUnsupported].
func DecodeItems(f Frames, o Options) (KwargsItems, error) {
	return decodeWhole(f, o, (*decoder).items)
}

func (e *encoder) items(k KwargsItems) {
	e.mapLen(len(k))
	seen := make(map[string]bool, len(k))
	for _, m := range k {
		if seen[m.Modality] {
			e.invalid("items", "two entries for the modality %.64q", m.Modality)
			return
		}
		seen[m.Modality] = true
		e.str(m.Modality)
		e.array(len(m.Items))
		for _, it := range m.Items {
			e.item(it, m.Modality)
		}
	}
}

func (d *decoder) items() (KwargsItems, error) {
	n, err := d.mapLen("items")
	if err != nil {
		return nil, err
	}
	out := make(KwargsItems, 0, small(n))
	seen := make(map[string]bool, small(n))
	for range n {
		var m ModalityItems
		if m.Modality, err = d.text("modality"); err != nil {
			return nil, err
		}
		if seen[m.Modality] {
			return nil, d.corrupt("items", "each modality once", fmt.Sprintf("%.64q twice", m.Modality))
		}
		seen[m.Modality] = true
		k, err := d.array("items")
		if err != nil {
			return nil, err
		}
		for range k {
			it, err := d.item()
			if err != nil {
				return nil, err
			}
			m.Items = append(m.Items, it)
		}
		out = append(out, m)
	}
	return out, nil
}
