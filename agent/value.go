package agent

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"github.com/ringcache/ringcache/serde"
)

const (
	// hexLimit is up to how many bytes a reply shows a tensor in full.
	hexLimit = 256
	maxDepth = 64
)

// The JSON form of a value, in both directions.
type (
	valueJSON struct {
		Type   string      `json:"type"`
		Fields []fieldJSON `json:"fields"`
		Data   rawJSON     `json:"data"`
		Hex    *hexBytes   `json:"hex"`
		// Modality is part of the items of vLLM 0.11 to 0.15, which need one;
		// "image" if absent.
		Modality *string `json:"modality"`
	}
	fieldJSON struct {
		Name  string    `json:"name"`
		Data  rawJSON   `json:"data"`
		Field *kindJSON `json:"field"`
	}
	kindJSON struct {
		Kind      string    `json:"kind"`
		KeepOnCPU bool      `json:"keep_on_cpu"`
		BatchSize *int      `json:"batch_size"`
		Slices    []rawJSON `json:"slices"`
		Dim       *int      `json:"dim"`
	}
	tensorJSON struct {
		DType *string   `json:"dtype"`
		Shape []int     `json:"shape"`
		Hex   *hexBytes `json:"hex"`
		XOF   *string   `json:"xof"`
		// SHA256 is part of replies. A tensor of a reply may be sent back.
		SHA256 hexBytes `json:"sha256"`
		Float  *string  `json:"float"` // instead of all others: what JSON has no number for
	}
)

// value decodes the field of that name. With layout tensors need no data.
func (p *params) value(name string, layout bool) serde.Value {
	j := required[valueJSON](p, name)
	d := valueDecoder{p, layout}
	switch j.Type {
	case "item":
		return d.item(j)
	case "tensor":
		t, ok := d.data(j.Data, 0).(*serde.Tensor)
		if !ok {
			p.fail("value of type tensor: data is not a tensor")
		}
		return t
	case "pickle":
		if j.Hex == nil {
			p.fail("value of type pickle: field \"hex\" is missing")
		}
		return serde.Pickle(*j.Hex)
	}
	p.fail("value: unknown type %q, want item, tensor or pickle", j.Type)
	return nil
}

type valueDecoder struct {
	*params
	layout bool
}

func (d valueDecoder) item(j valueJSON) serde.Value {
	it := &serde.Item{Modality: "image"}
	if j.Modality != nil {
		it.Modality = *j.Modality
	}
	for _, f := range j.Fields {
		if f.Field == nil {
			d.fail("item: field %q has no \"field\"", f.Name)
		}
		it.Elems = append(it.Elems, serde.Elem{Key: f.Name, Data: d.data(f.Data, 0), Field: d.kind(*f.Field)})
	}
	return it
}

func (d valueDecoder) kind(j kindJSON) serde.Field {
	f := serde.Field{KeepOnCPU: j.KeepOnCPU}
	switch j.Kind {
	case "batched":
		f.Kind = serde.Batched
	case "shared":
		f.Kind = serde.Shared
		if j.BatchSize == nil {
			d.fail("shared field: \"batch_size\" is missing")
		}
		f.BatchSize = *j.BatchSize
	case "flat":
		f.Kind = serde.Flat
		if j.Dim != nil {
			f.Dim = *j.Dim
		}
		for i, raw := range j.Slices {
			// By its text, since Go also reads [null,null,null] as a list of lists.
			nested := isListOfLists(raw)
			if i == 0 {
				f.Nested = nested
			}
			group := [][]*int64{nil}
			var err error
			if nested {
				err = json.Unmarshal(raw, &group)
			} else {
				err = json.Unmarshal(raw, &group[0])
			}
			if err != nil || nested != f.Nested {
				d.fail("flat field: slice %s, want [start,stop,step] everywhere, or lists of those everywhere", raw)
			}
			f.Slices = append(f.Slices, d.slices(group))
		}
	default:
		d.fail("unknown kind of field %q, want batched, shared or flat", j.Kind)
	}
	return f
}

// isListOfLists reports whether a JSON value is a list whose first element, if
// there is one, is a list.
func isListOfLists(raw rawJSON) bool {
	if firstByte(raw) != '[' {
		return false
	}
	c := firstByte(bytes.TrimSpace(raw)[1:])
	return c == '[' || c == ']'
}

func (d valueDecoder) slices(in [][]*int64) []serde.Slice {
	out := []serde.Slice{}
	for _, s := range in {
		if len(s) != 3 {
			d.fail("flat field: a slice has %d bounds, want 3", len(s))
		}
		out = append(out, serde.Slice{Start: s[0], Stop: s[1], Step: s[2]})
	}
	return out
}

func (d valueDecoder) data(raw rawJSON, depth int) any {
	if depth > maxDepth {
		d.fail("data is nested more than %d deep", maxDepth)
	}
	switch c := firstByte(raw); {
	case c == 0 || c == 'n':
		return nil
	case c == '{':
		return d.tensor(raw)
	case c == '[':
		var parts []rawJSON
		if err := json.Unmarshal(raw, &parts); err != nil {
			d.fail("data: %w", err)
		}
		list := []any{}
		for _, part := range parts {
			list = append(list, d.data(part, depth+1))
		}
		return list
	case c == 't' || c == 'f':
		return c == 't'
	default:
		return d.number(string(bytes.TrimSpace(raw)))
	}
}

func firstByte(raw rawJSON) byte {
	if b := bytes.TrimSpace(raw); len(b) > 0 {
		return b[0]
	}
	return 0
}

func (d valueDecoder) number(s string) any {
	if !strings.ContainsAny(s, ".eE") {
		if n := integer(s); n != nil {
			return n
		}
	} else if f, err := strconv.ParseFloat(s, 64); err == nil {
		return f
	}
	d.fail("data %.40s: want a tensor, an integer of 64 bits, a float, a boolean, null or a list", s)
	return nil
}

// integer is an int64, or else a uint64, or nil if the text is no integer of 64 bits.
func integer(s string) any {
	if i, err := strconv.ParseInt(s, 10, 64); err == nil {
		return i
	}
	if u, err := strconv.ParseUint(s, 10, 64); err == nil {
		return u
	}
	return nil
}

// specialFloats are those that JSON has no number for.
var specialFloats = map[string]float64{"nan": math.NaN(), "inf": math.Inf(1), "-inf": math.Inf(-1)}
