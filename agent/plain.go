package agent

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/ringcache/ringcache/serde"
)

// plain is a value without a fixed type, such as a sampling parameter, in the
// form of docs/agent.md: JSON, and objects with one key that begins with "$" for
// what JSON has not.
type plain struct{ value any }

func (p plain) MarshalJSON() ([]byte, error) { return json.Marshal(encodePlain(p.value)) }

func (p *plain) UnmarshalJSON(raw []byte) (err error) {
	p.value, err = decodePlain(raw, 0)
	return err
}

func encodePlain(v any) any {
	switch v := v.(type) {
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return reply{"$float": strings.ToLower(strings.TrimPrefix(strconv.FormatFloat(v, 'g', -1, 64), "+"))}
		}
		return encodeFloat(v)
	case []byte:
		return reply{"$bytes": hex.EncodeToString(v)}
	case *serde.Tensor:
		return reply{"$tensor": encodeData(v)}
	case *serde.NDArray:
		return reply{"$ndarray": encodeArray(v.DType, v.Shape, v.Data)}
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = encodePlain(x)
		}
		return out
	case map[string]any:
		out := reply{}
		for k, x := range v {
			out[k] = encodePlain(x)
			if len(v) == 1 && strings.HasPrefix(k, "$") {
				return reply{"$map": [][2]any{{k, out[k]}}}
			}
		}
		return out
	case *serde.Map:
		pairs := make([][2]any, len(v.Keys))
		for i, k := range v.Keys {
			pairs[i] = [2]any{encodePlain(k), encodePlain(v.Values[i])}
		}
		return reply{"$map": pairs}
	}
	return v
}

func decodePlain(raw rawJSON, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("a value is nested more than %d deep", maxDepth)
	}
	switch c := firstByte(raw); c {
	case 'n':
		return nil, nil
	case 't', 'f':
		return c == 't', nil
	case '"':
		var s string
		err := json.Unmarshal(raw, &s)
		return s, err
	case '[':
		var parts []rawJSON
		if err := json.Unmarshal(raw, &parts); err != nil {
			return nil, err
		}
		out := make([]any, len(parts))
		for i, part := range parts {
			var err error
			if out[i], err = decodePlain(part, depth+1); err != nil {
				return nil, err
			}
		}
		return out, nil
	case '{':
		return decodePlainObject(raw, depth)
	}
	return decodePlainNumber(string(bytes.TrimSpace(raw)))
}

func decodePlainNumber(s string) (any, error) {
	if strings.ContainsAny(s, ".eE") {
		return strconv.ParseFloat(s, 64)
	}
	if n := integer(s); n != nil {
		return n, nil
	}
	return nil, fmt.Errorf("%.40s is no integer of 64 bits", s)
}

func decodePlainObject(raw rawJSON, depth int) (any, error) {
	var parts map[string]rawJSON
	if err := json.Unmarshal(raw, &parts); err != nil {
		return nil, err
	}
	out := make(map[string]any, len(parts))
	for k, part := range parts {
		if len(parts) == 1 && strings.HasPrefix(k, "$") {
			return decodeTagged(k, part, depth)
		}
		var err error
		if out[k], err = decodePlain(part, depth+1); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func decodeTagged(tag string, raw rawJSON, depth int) (any, error) {
	switch tag {
	case "$bytes":
		var b hexBytes
		err := json.Unmarshal(raw, &b)
		return []byte(b), err
	case "$float":
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return nil, err
		}
		if f, ok := specialFloats[s]; ok {
			return f, nil
		}
		return nil, fmt.Errorf("$float %.40q, want nan, inf or -inf", s)
	case "$tensor", "$ndarray":
		return decodePlainArray(tag, raw)
	case "$map":
		var pairs [][2]rawJSON
		if err := json.Unmarshal(raw, &pairs); err != nil {
			return nil, err
		}
		m := &serde.Map{}
		for _, p := range pairs {
			k, err := decodePlain(p[0], depth+1)
			if err != nil {
				return nil, err
			}
			v, err := decodePlain(p[1], depth+1)
			if err != nil {
				return nil, err
			}
			m.Keys, m.Values = append(m.Keys, k), append(m.Values, v)
		}
		return m, nil
	}
	return nil, fmt.Errorf("unknown form %.40q, want $float, $bytes, $tensor, $ndarray or $map", tag)
}

func decodePlainArray(tag string, raw rawJSON) (any, error) {
	var j struct {
		DType  string   `json:"dtype"`
		Shape  []int    `json:"shape"`
		Hex    hexBytes `json:"hex"`
		SHA256 hexBytes `json:"sha256"`
	}
	if err := unmarshal(raw, &j); err != nil {
		return nil, err
	}
	data := []byte(j.Hex)
	if err := checkSum(data, j.SHA256); err != nil {
		return nil, err
	}
	if j.Shape == nil {
		return nil, fmt.Errorf("%s without a shape", tag)
	}
	if tag == "$ndarray" {
		return &serde.NDArray{DType: j.DType, Shape: j.Shape, Data: data}, nil
	}
	dtype, known := serde.ParseDType(j.DType)
	if !known {
		return nil, fmt.Errorf("unknown dtype %.40q", j.DType)
	}
	return &serde.Tensor{DType: dtype, Shape: j.Shape, Data: data}, nil
}

// plainMap turns plain values into the map that the library takes; nil stays nil.
func plainMap(in map[string]plain) map[string]any {
	if in == nil {
		return nil
	}
	out := make(map[string]any, len(in))
	for k, v := range in {
		out[k] = v.value
	}
	return out
}

// number is a float in JSON, also one that JSON has no number for.
type number float64

func (n number) MarshalJSON() ([]byte, error) { return plain{float64(n)}.MarshalJSON() }

func (n *number) UnmarshalJSON(raw []byte) error {
	var p plain
	if err := p.UnmarshalJSON(raw); err != nil {
		return err
	}
	switch v := p.value.(type) {
	case int64:
		*n = number(v)
	case uint64:
		*n = number(v)
	case float64:
		*n = number(v)
	default:
		return fmt.Errorf("%.40s is no number", raw)
	}
	return nil
}
