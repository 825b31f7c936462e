package pyvalue

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"unicode/utf8"

	"github.com/ringcache/ringcache/internal/codec"
	"github.com/ringcache/ringcache/serde"
)

// Canonical returns a value in the form that [Read] gives it, which is also what
// [WriteCanonical] writes. It shares no memory with v, which is nil, a bool, an
// integer or a float of any Go type, a string, []byte, slices and maps of these (with
// strings or integers for keys), *[serde.Map], *[serde.NDArray] or *[serde.Tensor].
// The error is the bare problem.
func Canonical(v any) (any, error) { return canonicalAt(v, 0) }

func canonicalAt(v any, depth int) (any, error) {
	if depth > codec.MaxDepth {
		return nil, fmt.Errorf("it is nested deeper than %d", codec.MaxDepth)
	}
	switch v := v.(type) {
	case nil, bool, int64, float64:
		return v, nil
	case []byte:
		return append([]byte{}, v...), nil
	case string:
		if !utf8.ValidString(v) {
			return nil, fmt.Errorf("%.64q is not UTF-8", v)
		}
		return v, nil
	case *serde.Tensor:
		if v == nil {
			return nil, nil
		}
		return serde.Clone(v), nil
	case *serde.NDArray:
		if v == nil {
			return nil, nil
		}
		return &serde.NDArray{DType: v.DType, Shape: slices.Clone(v.Shape), Data: slices.Clone(v.Data)}, nil
	case *serde.Map:
		if v == nil {
			return nil, nil
		}
		return canonicalMap(v, depth)
	}
	r := reflect.ValueOf(v)
	switch r.Kind() {
	case reflect.Bool:
		return r.Bool(), nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return r.Int(), nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if u := r.Uint(); u > math.MaxInt64 {
			return u, nil
		}
		return int64(r.Uint()), nil
	case reflect.Float32, reflect.Float64:
		return r.Float(), nil
	case reflect.String:
		return canonicalAt(r.String(), depth)
	case reflect.Slice, reflect.Array:
		if r.Kind() == reflect.Slice && r.Type().Elem().Kind() == reflect.Uint8 {
			return append([]byte{}, r.Bytes()...), nil
		}
		out := make([]any, r.Len())
		for i := range out {
			var err error
			if out[i], err = canonicalAt(r.Index(i).Interface(), depth+1); err != nil {
				return nil, err
			}
		}
		return out, nil
	case reflect.Map:
		return canonicalGoMap(r, depth)
	}
	return nil, fmt.Errorf("a %T has no form in MessagePack here", v)
}

func canonicalMap(m *serde.Map, depth int) (any, error) {
	if len(m.Keys) != len(m.Values) {
		return nil, fmt.Errorf("a Map has %d keys and %d values", len(m.Keys), len(m.Values))
	}
	out := &serde.Map{Keys: make([]any, len(m.Keys)), Values: make([]any, len(m.Keys))}
	for i := range m.Keys {
		var err error
		if out.Keys[i], err = canonicalAt(m.Keys[i], depth+1); err != nil {
			return nil, err
		}
		switch out.Keys[i].(type) {
		case bool, int64, uint64, float64, string:
		default:
			return nil, fmt.Errorf("a %T can't be the key of a map", m.Keys[i])
		}
		if out.Values[i], err = canonicalAt(m.Values[i], depth+1); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// canonicalGoMap turns a Go map into a map[string]any, or a Map in the order of
// its keys where they are numbers.
func canonicalGoMap(r reflect.Value, depth int) (any, error) {
	if r.Type().Key().Kind() == reflect.String {
		out := make(map[string]any, r.Len())
		for it := r.MapRange(); it.Next(); {
			key, err := canonicalAt(it.Key().String(), depth)
			if err != nil {
				return nil, err
			}
			if out[key.(string)], err = canonicalAt(it.Value().Interface(), depth+1); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	keys := r.MapKeys()
	switch r.Type().Key().Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		slices.SortFunc(keys, func(a, b reflect.Value) int { return cmp.Compare(a.Int(), b.Int()) })
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		slices.SortFunc(keys, func(a, b reflect.Value) int { return cmp.Compare(a.Uint(), b.Uint()) })
	default:
		return nil, fmt.Errorf("a %s has keys that are neither strings nor integers", r.Type())
	}
	m := &serde.Map{}
	for _, k := range keys {
		m.Keys, m.Values = append(m.Keys, k.Interface()), append(m.Values, r.MapIndex(k).Interface())
	}
	return canonicalMap(m, depth)
}

// Write writes a value that [Canonical] takes. What is the part of the message that
// an error names.
func Write(e *codec.Encoder, what string, v any) {
	c, err := Canonical(v)
	if err != nil {
		e.Invalid(what, "%s", err)
		return
	}
	WriteCanonical(e, c)
}

// WriteCanonical writes a canonical value. Maps that have no order of their own are
// written in the order of their keys.
func WriteCanonical(e *codec.Encoder, v any) {
	switch v := v.(type) {
	case nil:
		e.Nil()
	case bool:
		e.Bool(v)
	case int64:
		e.Int(v)
	case uint64:
		e.Uint(v)
	case float64:
		e.Float(v)
	case string:
		e.Text(v)
	case []byte:
		e.Bytes(v)
	case *serde.Tensor:
		WriteTensor(e, v)
	case *serde.NDArray:
		WriteNDArray(e, v)
	case []any:
		e.Array(len(v))
		for _, x := range v {
			WriteCanonical(e, x)
		}
	case map[string]any:
		e.Map(len(v))
		for _, k := range slices.Sorted(maps.Keys(v)) {
			e.Text(k)
			WriteCanonical(e, v[k])
		}
	case *serde.Map:
		e.Map(len(v.Keys))
		for i, k := range v.Keys {
			WriteCanonical(e, k)
			WriteCanonical(e, v.Values[i])
		}
	default:
		e.Invalid("value", "a %T has no form in MessagePack here", v)
	}
}
