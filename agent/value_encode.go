package agent

import (
	"encoding/hex"
	"math"
	"strconv"
	"strings"

	"github.com/ringcache/ringcache/serde"
)

// encodeValue is the JSON form of a value. It reads every tensor.
func encodeValue(v serde.Value) reply {
	switch v := v.(type) {
	case *serde.Item:
		fields := []reply{}
		for _, e := range v.Elems {
			fields = append(fields, reply{"name": e.Key, "data": encodeData(e.Data), "field": encodeKind(e.Field)})
		}
		out := reply{"type": "item", "fields": fields}
		if v.Modality != "" {
			out["modality"] = v.Modality
		}
		return out
	case *serde.Tensor:
		return reply{"type": "tensor", "data": encodeData(v)}
	case serde.Pickle:
		return reply{"type": "pickle", "hex": hex.EncodeToString(v)}
	}
	return nil
}

func encodeData(d any) any {
	switch d := d.(type) {
	case *serde.Tensor:
		return encodeArray(string(d.DType), d.Shape, d.Data)
	case bool, int64, uint64:
		return d
	case float64:
		return encodeFloat(d)
	case []any:
		out := make([]any, len(d))
		for i, x := range d {
			out[i] = encodeData(x)
		}
		return out
	}
	return nil
}

func encodeArray(dtype string, shape []int, data []byte) reply {
	out := reply{"dtype": dtype, "shape": append([]int{}, shape...)}
	describeBytes(out, data)
	return out
}

// encodeFloat writes a float so that it can't be taken for an integer; what
// JSON has no number for becomes {"float": "nan"}.
func encodeFloat(f float64) any {
	s := strconv.FormatFloat(f, 'g', -1, 64)
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return reply{"float": strings.ToLower(strings.TrimPrefix(s, "+"))}
	}
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return rawJSON(s)
}

func encodeKind(f serde.Field) reply {
	out := reply{"kind": f.Kind.String()}
	if f.KeepOnCPU {
		out["keep_on_cpu"] = true
	}
	switch f.Kind {
	case serde.Shared:
		out["batch_size"] = f.BatchSize
	case serde.Flat:
		out["dim"] = f.Dim
		slices := []any{}
		for _, s := range f.Slices {
			if f.Nested {
				slices = append(slices, encodeSlices(s))
			} else {
				slices = append(slices, encodeSlices(s)[0])
			}
		}
		out["slices"] = slices
	}
	return out
}

func encodeSlices(in []serde.Slice) [][3]*int64 {
	out := [][3]*int64{}
	for _, s := range in {
		out = append(out, [3]*int64{s.Start, s.Stop, s.Step})
	}
	return out
}
