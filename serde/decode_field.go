package serde

import (
	"fmt"

	"github.com/ringcache/ringcache/internal/codec"
	"github.com/ringcache/ringcache/pycompat"
)

// field reads a field. Python passes the arguments on to a factory, which has
// defaults for keep_on_cpu and dim: they may be missing, others may not.
func (d *decoder) field() (f Field, err error) {
	const what = "field"
	n, err := d.Array(what)
	if err != nil {
		return f, err
	}
	if n == 0 {
		return f, d.Corrupt(what, "a name", "an empty array")
	}
	name, err := d.TextView(what)
	if err != nil {
		return f, err
	}
	switch string(name) {
	case "batched":
		f.Kind = Batched
	case "flat":
		f.Kind = Flat
	case "shared":
		f.Kind = Shared
	default:
		return f, &codec.UnsupportedError{
			Text: fmt.Sprintf("serde: there is no field %.64q in the vLLM releases this library knows; update the library", name),
		}
	}
	if d.gen.ItemForm == pycompat.ItemPositional {
		return f, d.fieldArgs(&f, n-1)
	}
	if n != 2 {
		return f, d.Corrupt(what, "[name, arguments]", fmt.Sprintf("an array of %d", n))
	}
	return f, d.fieldMap(&f)
}

func (d *decoder) fieldArgs(f *Field, n int) error {
	var order []int
	switch f.Kind {
	case Flat:
		order = []int{seenSlices, seenDim}
	case Shared:
		order = []int{seenBatchSize}
	}
	if n > len(order) {
		return d.Corrupt("field", fmt.Sprintf("at most %d arguments of a %s one", len(order), f.Kind), fmt.Sprint(n))
	}
	seen := 0
	for _, bit := range order[:n] {
		seen |= bit
		if err := d.fieldArg(f, bit); err != nil {
			return err
		}
	}
	return d.complete(f, seen)
}

func (d *decoder) fieldMap(f *Field) error {
	const what = "field"
	n, err := d.Map(what)
	if err != nil {
		return err
	}
	seen := 0
	for range n {
		name, err := d.TextView(what)
		if err != nil {
			return err
		}
		bit := 0
		switch s := string(name); {
		case s == "keep_on_cpu":
			bit = seenKeep
		case f.Kind == Flat && s == "slices":
			bit = seenSlices
		case f.Kind == Flat && s == "dim":
			bit = seenDim
		case f.Kind == Shared && s == "batch_size":
			bit = seenBatchSize
		default:
			return d.Corrupt(what, fmt.Sprintf("only arguments of a %s one", f.Kind), fmt.Sprintf("%.64q", name))
		}
		if err := d.once(what, name, &seen, bit); err != nil {
			return err
		}
		if err := d.fieldArg(f, bit); err != nil {
			return err
		}
	}
	return d.complete(f, seen)
}

func (d *decoder) fieldArg(f *Field, bit int) (err error) {
	switch bit {
	case seenKeep:
		f.KeepOnCPU, err = d.Bool("keep_on_cpu")
	case seenSlices:
		f.Slices, f.Nested, err = d.slices()
	case seenDim:
		f.Dim, err = d.IntFrom("dim", -maxDim)
	case seenBatchSize:
		f.BatchSize, err = d.IntFrom("batch_size", 0)
	}
	return err
}

// maxDim bounds a negative dim generously; whether the tensors have such a
// dimension shows only when a batch is made.
const maxDim = 1 << 30

func (d *decoder) complete(f *Field, seen int) error {
	if f.Kind == Flat && seen&seenSlices == 0 || f.Kind == Shared && seen&seenBatchSize == 0 {
		return d.Corrupt("field", "slices or batch_size", "none")
	}
	return nil
}

// slices reads a list of slices or a list of such lists. vLLM's decoder tells
// them apart by what the first entry starts with; mixtures and deeper lists,
// which no release writes, are refused.
func (d *decoder) slices() (out [][]Slice, nested bool, err error) {
	const what = "slices"
	n, err := d.Array(what)
	if err != nil || n == 0 {
		return nil, false, err
	}
	out = d.mem.lists.take(d.Room(n))[:0]
	for i := range n {
		inner, err := d.Array(what)
		if err != nil {
			return nil, false, err
		}
		isList := inner == 0 || d.Peek() == codec.KindArray
		if i == 0 {
			nested = isList
		}
		if isList != nested {
			return nil, false, d.Corrupt(what, "slices or lists of slices", "a mixture")
		}
		var list []Slice
		if isList {
			list = d.mem.slices.take(d.Room(inner))[:0]
			for range inner {
				k, err := d.Array(what)
				if err != nil {
					return nil, false, err
				}
				s, err := d.slice(k)
				if err != nil {
					return nil, false, err
				}
				list = append(list, s)
			}
		} else {
			s, err := d.slice(inner)
			if err != nil {
				return nil, false, err
			}
			list = d.mem.slices.take(1)
			list[0] = s
		}
		out = append(out, list)
	}
	return out, nested, nil
}

// slice reads what follows the header of its array of n.
func (d *decoder) slice(n int) (s Slice, err error) {
	if n != 3 {
		return s, d.Corrupt("slice", "[start, stop, step]", fmt.Sprintf("an array of %d", n))
	}
	var values []int64
	for i, bound := range []**int64{&s.Start, &s.Stop, &s.Step} {
		if d.Nil() {
			continue
		}
		n, err := d.Int64("slice")
		if err != nil {
			return Slice{}, err
		}
		if values == nil {
			values = d.mem.bounds.take(3)
		}
		values[i] = n
		*bound = &values[i]
	}
	return s, nil
}
