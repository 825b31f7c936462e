package serde

import "fmt"

// What values take in memory, about: a byte of a hostile message must not stand
// for hundreds.
const (
	costValue = 24
	costEntry = 64  // of a map
	costMap   = 300 // with entries
	costError = 300

	// A message may take a multiple of its own length, and something besides.
	// What vLLM sends stays far below.
	costFactor = 16
	costBase   = 4 << 20
)

// charge accounts for memory that a message makes us take.
func (d *decoder) charge(what string, n int) error {
	d.cost += n
	if d.cost > costFactor*len(d.doc)+costBase {
		return d.corrupt(what, "values worth their bytes", "too many small ones")
	}
	return nil
}

// anything reads a value of any kind, see [DecodeOutputs]. With arrays, what
// looks like an ndarray or a tensor becomes one.
func (d *decoder) anything(what string, arrays bool) (any, error) {
	v, err := d.anythingAt(what, arrays, 0)
	if err != nil {
		return nil, err
	}
	return v, nil
}

func (d *decoder) anythingAt(what string, arrays bool, depth int) (any, error) {
	if depth > MaxDepth {
		return nil, d.corrupt(what, fmt.Sprintf("at most %d levels", MaxDepth), "more")
	}
	if err := d.charge(what, costValue); err != nil {
		return nil, err
	}
	switch k := d.peek(); k {
	case kindNil:
		d.null()
		return nil, nil
	case kindBool:
		return d.boolean(what)
	case kindInt:
		switch n, err := d.number(what); n := n.(type) {
		case Int:
			return int64(n), err
		case Uint:
			return uint64(n), err
		default:
			return nil, err
		}
	case kindFloat:
		return d.float(what)
	case kindStr:
		return d.text(what)
	case kindBin, kindExt:
		return d.bytes(what)
	case kindArray:
		return d.anyArray(what, arrays, depth)
	case kindMap:
		return d.anyMap(what, arrays, depth)
	default:
		return nil, d.corrupt(what, "a value", string(k))
	}
}

// float reads a float, or an integer where Python takes one for a float.
func (d *decoder) float(what string) (float64, error) {
	if d.peek() == kindInt {
		switch n, err := d.number(what); n := n.(type) {
		case Int:
			return float64(n), err
		case Uint:
			return float64(n), err
		default:
			return 0, err
		}
	}
	if err := d.expect(kindFloat, what); err != nil {
		return 0, err
	}
	f, err := d.mp.DecodeFloat64()
	if err != nil {
		return 0, d.broken(what, err)
	}
	return f, nil
}

// bytes reads bytes, or a raw extension.
func (d *decoder) bytes(what string) ([]byte, error) {
	var n int
	var err error
	if d.peek() == kindExt {
		var id int8
		if id, n, err = d.mp.DecodeExtHeader(); err == nil && id != extRaw {
			return nil, &UnsupportedError{fmt.Sprintf("serde: %s holds the extension %d, which is never executed; "+
				"run the peer without VLLM_ALLOW_INSECURE_SERIALIZATION", what, id)}
		}
	} else {
		n, err = d.mp.DecodeBytesLen()
	}
	if err != nil {
		return nil, d.broken(what, err)
	}
	b, err := d.view(what, n)
	if err != nil {
		return nil, err
	}
	if err := d.charge(what, n); err != nil {
		return nil, err
	}
	return append([]byte{}, b...), nil
}

func (d *decoder) anyArray(what string, arrays bool, depth int) (any, error) {
	start := d.pos()
	n, err := d.array(what)
	if err != nil {
		return nil, err
	}
	if arrays && n == 3 && d.peek() == kindStr {
		name, err := d.str(what)
		if err != nil {
			return nil, err
		}
		_, torch := lookupDType(name)
		_, numpy := numpyItemSize(string(name))
		if torch || numpy {
			d.seek(start)
			if torch {
				return ok(d.tensor())
			}
			return ok(d.ndarray())
		}
		d.seek(start)
		_, _ = d.array(what)
	}
	if err := d.charge(what, costValue*n); err != nil {
		return nil, err
	}
	out := make([]any, 0, n)
	for range n {
		v, err := d.anythingAt(what, arrays, depth+1)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// ok keeps a typed nil out of the interface.
func ok[T any](v *T, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return v, nil
}

func (d *decoder) anyMap(what string, arrays bool, depth int) (any, error) {
	n, err := d.mapLen(what)
	if err != nil {
		return nil, err
	}
	if n > 0 {
		if err := d.charge(what, costMap+costEntry*n); err != nil {
			return nil, err
		}
	}
	m := &Map{Keys: make([]any, 0, n), Values: make([]any, 0, n)}
	texts := true
	for range n {
		switch k := d.peek(); k {
		case kindStr, kindInt, kindFloat, kindBool:
			texts = texts && k == kindStr
		default:
			return nil, d.corrupt(what, "a string or a number as key", string(k))
		}
		k, err := d.anythingAt(what, false, depth+1)
		if err != nil {
			return nil, err
		}
		v, err := d.anythingAt(what, arrays, depth+1)
		if err != nil {
			return nil, err
		}
		m.Keys, m.Values = append(m.Keys, k), append(m.Values, v)
	}
	if !texts {
		return m, nil
	}
	out := make(map[string]any, n)
	for i, k := range m.Keys {
		out[k.(string)] = m.Values[i]
	}
	return out, nil
}

// anyMapOf reads a map with strings for keys.
func (d *decoder) anyMapOf(what string) (map[string]any, error) {
	v, err := d.anything(what, false)
	if err != nil {
		return nil, err
	}
	m, isMap := v.(map[string]any)
	if !isMap {
		return nil, d.corrupt(what, "a map with strings for keys", fmt.Sprintf("a %T", v))
	}
	return m, nil
}

// seek goes to a position that was passed before.
func (d *decoder) seek(pos int) { _, _ = d.r.Seek(int64(pos), 0) }

func optionalValue[T any](d *decoder, what string, read func(string) (T, error)) (*T, error) {
	if d.null() {
		return nil, nil
	}
	v, err := read(what)
	if err != nil {
		return nil, err
	}
	return &v, nil
}

func (d *decoder) texts(what string) ([]string, error) {
	n, err := d.array(what)
	if err != nil {
		return nil, err
	}
	out := make([]string, 0, d.room(n))
	for range n {
		s, err := d.text(what)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// uint32s reads a list of tokens.
func (d *decoder) uint32s(what string) ([]uint32, error) {
	n, err := d.array(what)
	if err != nil {
		return nil, err
	}
	out := make([]uint32, 0, d.room(n))
	for range n {
		u, err := d.uint32(what)
		if err != nil {
			return nil, err
		}
		out = append(out, u)
	}
	return out, nil
}

func (d *decoder) uint32(what string) (uint32, error) {
	n, err := d.int64(what)
	if err != nil {
		return 0, err
	}
	if n < 0 || n > 1<<32-1 {
		return 0, d.corrupt(what, "an unsigned 32-bit integer", fmt.Sprint(n))
	}
	return uint32(n), nil
}

// textMap reads a map from strings to strings.
func (d *decoder) textMap(what string) (map[string]string, error) {
	n, err := d.mapLen(what)
	if err != nil {
		return nil, err
	}
	if err := d.charge(what, costMap+costEntry*n); err != nil {
		return nil, err
	}
	out := make(map[string]string, n)
	for range n {
		k, err := d.text(what)
		if err != nil {
			return nil, err
		}
		if out[k], err = d.text(what); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (d *decoder) bools(what string) ([]bool, error) {
	n, err := d.array(what)
	if err != nil {
		return nil, err
	}
	out := make([]bool, 0, d.room(n))
	for range n {
		b, err := d.boolean(what)
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}
