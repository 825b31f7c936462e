package model

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math/bits"
	"strconv"
	"strings"
)

// sized is a value of the protocol with the bytes that vLLM's caches count for it.
type sized struct {
	reply any // the value as replies show it
	size  int64
}

// python is an interpreter, by the sizes of its numbers: sys.getsizeof of a 64-bit CPython.
type python struct{ narrowZero bool }

// python is the field of that name. 0 and False take 24 bytes before 3.11.2, and 28 since.
func (a *args) python() python {
	var n []int
	for _, part := range strings.SplitN(fieldOr(a, "python", "3.11"), ".", 3) {
		v, err := strconv.Atoi(part)
		if err != nil {
			v = -1
		}
		n = append(n, v)
	}
	if len(n) < 2 || n[0] != 3 || n[1] < 9 || n[1] > 14 || len(n) == 3 && n[2] < 0 {
		a.fail("python %v", a.fields["python"])
		return python{}
	}
	return python{narrowZero: n[1] < 11 || n[1] == 11 && len(n) == 3 && n[2] < 2}
}

// value reads a value of type item or tensor; tensors have to come as hexadecimal text. An error
// that is no refusal means that this model does not handle the value.
func (p python) value(v any) (*sized, error) {
	m, ok := v.(map[string]any)
	if !ok {
		return nil, invalid("value %v", v)
	}
	switch m["type"] {
	case "tensor":
		if _, ok := m["data"].(map[string]any); !ok {
			return nil, invalid("the data of a tensor is %v", m["data"])
		}
		reply, size, _, err := p.data(m["data"])
		return &sized{map[string]any{"type": "tensor", "data": reply}, size}, err
	case "item":
		return p.item(m)
	case "pickle":
		return nil, refuse("unsupported", "the size of a pickle is known to Python only")
	}
	return nil, invalid("value of type %v", m["type"])
}

// item adds up what is in the fields of an item: its name, its fields' names and their kinds are
// free (get_item_size in vllm/multimodal/cache.py). An item, or a field, without any value in it
// has no size.
func (p python) item(m map[string]any) (*sized, error) {
	out := &sized{}
	fields := []any{}
	list, _ := m["fields"].([]any)
	for _, v := range list {
		f, ok := v.(map[string]any)
		if !ok {
			return nil, invalid("field %v", v)
		}
		reply, size, leaves, err := p.data(f["data"])
		if err != nil {
			return nil, err
		}
		if leaves == 0 {
			return nil, nothingToSize()
		}
		out.size += size
		kind, _ := f["field"].(map[string]any)
		kind = maps.Clone(kind)
		maps.DeleteFunc(kind, func(name string, v any) bool { return name == "keep_on_cpu" && v != true })
		fields = append(fields, map[string]any{"name": f["name"], "data": reply, "field": kind})
	}
	if len(fields) == 0 {
		return nil, nothingToSize()
	}
	modality := m["modality"]
	if modality == nil {
		modality = "image"
	}
	out.reply = map[string]any{"type": "item", "fields": fields, "modality": modality}
	return out, nil
}

// data returns how a reply shows data, its bytes, and the number of values in it.
func (p python) data(v any) (reply any, size int64, leaves int, err error) {
	switch v := v.(type) {
	case nil:
		return nil, 16, 1, nil
	case bool:
		if v {
			return v, 28, 1, nil
		}
		return v, p.intSize(0), 1, nil
	case int64:
		return v, p.intSize(v), 1, nil
	case float64:
		return v, 24, 1, nil
	case map[string]any:
		reply, size, err = sizedTensor(v)
		return reply, size, 1, err
	case []any:
		list := []any{}
		for _, x := range v {
			r, n, k, err := p.data(x)
			if err != nil {
				return nil, 0, 0, err
			}
			list, size, leaves = append(list, r), size+n, leaves+k
		}
		return list, size, leaves, nil
	}
	return nil, 0, 0, invalid("data %v", v)
}

// intSize is 24 bytes and 4 for each 30 bits. Current versions count one digit for 0, too.
func (p python) intSize(n int64) int64 {
	magnitude := uint64(n)
	if n < 0 {
		magnitude = -magnitude
	}
	digits := int64(bits.Len64(magnitude)+29) / 30
	if digits == 0 && !p.narrowZero {
		digits = 1
	}
	return 24 + 4*digits
}

// itemSizes are the bytes of an element of a tensor.
var itemSizes = map[string]int{
	"bool": 1, "uint8": 1, "int8": 1, "int16": 2, "float16": 2, "bfloat16": 2, "int32": 4, "float32": 4, "int64": 8,
	"float64": 8,
}

func sizedTensor(m map[string]any) (reply any, size int64, err error) {
	dtype, _ := m["dtype"].(string)
	width := itemSizes[dtype]
	text, isHex := m["hex"].(string)
	if width == 0 || !isHex {
		return nil, 0, fmt.Errorf("model: a tensor of dtype %q without hex: this model does not handle that", dtype)
	}
	data, err := hex.DecodeString(text)
	if err != nil {
		return nil, 0, invalid("%v", err)
	}
	size = int64(width)
	shape, _ := m["shape"].([]any)
	for _, d := range shape {
		n, ok := d.(int64)
		if !ok || n < 0 {
			return nil, 0, invalid("shape %v", shape)
		}
		size *= n
	}
	if int64(len(data)) != size {
		return nil, 0, invalid("%d bytes of data for the shape %v", len(data), shape)
	}
	sum := sha256.Sum256(data)
	out := map[string]any{"dtype": dtype, "shape": append([]any{}, shape...), "sha256": hex.EncodeToString(sum[:])}
	if len(data) <= 256 {
		out["hex"] = text
	}
	return out, size, nil
}
