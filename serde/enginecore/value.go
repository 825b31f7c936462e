package serde

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"slices"
	"unicode/utf8"
)

// Map is a map that has keys other than strings, or an order: Keys[i] is that of
// Values[i]. Keys are bool, int64, uint64, float64 or string.
type Map struct{ Keys, Values []any }

// canonical returns a value in the form that a decoder gives it (see
// [DecodeOutputs]), which is also what [encoder.value] writes. The error is the
// bare problem.
func canonical(v any) (any, error) { return canonicalAt(v, 0) }

func canonicalAt(v any, depth int) (any, error) {
	if depth > MaxDepth {
		return nil, fmt.Errorf("it is nested deeper than %d", MaxDepth)
	}
	switch v := v.(type) {
	case nil, bool, int64, float64, []byte:
		return v, nil
	case string:
		if !utf8.ValidString(v) {
			return nil, fmt.Errorf("%.64q is not UTF-8", v)
		}
		return v, nil
	case *Tensor:
		if v == nil {
			return nil, nil
		}
		return v, nil
	case *NDArray:
		if v == nil {
			return nil, nil
		}
		return v, nil
	case *Map:
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
			return r.Bytes(), nil
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

func canonicalMap(m *Map, depth int) (any, error) {
	if len(m.Keys) != len(m.Values) {
		return nil, fmt.Errorf("a Map has %d keys and %d values", len(m.Keys), len(m.Values))
	}
	out := &Map{Keys: make([]any, len(m.Keys)), Values: make([]any, len(m.Keys))}
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
	m := &Map{}
	for _, k := range keys {
		m.Keys, m.Values = append(m.Keys, k.Interface()), append(m.Values, r.MapIndex(k).Interface())
	}
	return canonicalMap(m, depth)
}

// anything makes a value canonical and writes it.
func (e *encoder) anything(what string, v any) {
	c, err := canonical(v)
	if err != nil {
		e.invalid(what, "%s", err)
		return
	}
	e.value(c)
}

// value writes a canonical value. Maps that have no order of their own are
// written in the order of their keys.
func (e *encoder) value(v any) {
	switch v := v.(type) {
	case nil:
		e.null()
	case bool:
		e.boolean(v)
	case int64:
		e.integer(v)
	case uint64:
		e.keep(e.mp.EncodeUint(v))
	case float64:
		e.keep(e.mp.EncodeFloat64(v))
	case string:
		e.str(v)
	case []byte:
		e.length(len(v))
		e.keep(e.mp.EncodeBytes(append([]byte{}, v...))) // nil would become None
	case *Tensor:
		e.tensor(v)
	case *NDArray:
		e.ndarray(v)
	case []any:
		e.array(len(v))
		for _, x := range v {
			e.value(x)
		}
	case map[string]any:
		e.mapLen(len(v))
		for _, k := range sortedKeys(v) {
			e.str(k)
			e.value(v[k])
		}
	case *Map:
		e.mapLen(len(v.Keys))
		for i, k := range v.Keys {
			e.value(k)
			e.value(v.Values[i])
		}
	default:
		e.invalid("value", "a %T has no form in MessagePack here", v)
	}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
