package model

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"strings"
)

// A stored value, as vLLM serializes it (MsgpackSerde, docs/format.md): metadata, then frames.
// The model has the values that make sizes easy to choose: pickles, and tensors.

// serialize returns the metadata and the frames of a value of the agent's protocol, and the
// value as replies to store.get have it.
func serialize(v any, threshold int) (metadata, data []byte, shown map[string]any, err error) {
	value, _ := v.(map[string]any)
	switch value["type"] {
	case "pickle":
		if data, err = hexBytes(value["hex"]); err != nil {
			return nil, nil, nil, err
		}
		return appendMetadata("bytes", len(data), nil), data,
			map[string]any{"type": "pickle", "hex": hex.EncodeToString(data)}, nil
	case "tensor":
		return serializeTensor(value, threshold)
	}
	return nil, nil, nil, fmt.Errorf("model: a value of type %v; the model has pickles, and tensors with their bytes",
		value["type"])
}

// serializeTensor: frame 0 is a MessagePack array of dtype, shape and data. Data are an
// extension of type 3 if they are smaller than the threshold, and the number of a frame if not.
func serializeTensor(value map[string]any, threshold int) (metadata, data []byte, shown map[string]any, err error) {
	t, _ := value["data"].(map[string]any)
	dtype, isText := t["dtype"].(string)
	dims, isList := t["shape"].([]any)
	bytes, err := hexBytes(t["hex"])
	if err != nil || !isText || !isList || len(dtype) > 31 || len(dims) > 15 {
		return nil, nil, nil, fmt.Errorf("model: a tensor needs dtype, shape and hex: %v", value)
	}
	frame := []byte{0x93, 0xa0 | byte(len(dtype))}
	frame = append(frame, dtype...)
	frame = append(frame, 0x90|byte(len(dims)))
	for _, d := range dims {
		n, ok := d.(int64)
		if !ok || n < 0 {
			return nil, nil, nil, fmt.Errorf("model: shape %v", dims)
		}
		frame = appendUint(frame, uint64(n))
	}
	sum := sha256.Sum256(bytes)
	out := map[string]any{"dtype": dtype, "shape": dims, "sha256": hex.EncodeToString(sum[:])}
	if len(bytes) <= 256 {
		out["hex"] = hex.EncodeToString(bytes)
	}
	shown = map[string]any{"type": "tensor", "data": out}
	if len(bytes) >= threshold {
		frame = append(frame, 1)
		lens := []int{len(frame), len(bytes)}
		data = append(frame, bytes...)
		return appendMetadata("Tensor", len(data), lens), data, shown, nil
	}
	frame = append(appendExtension(frame, len(bytes)), bytes...)
	return appendMetadata("Tensor", len(frame), []int{len(frame)}), frame, shown, nil
}

func hexBytes(v any) ([]byte, error) {
	text, ok := v.(string)
	if !ok {
		return nil, fmt.Errorf("model: hex is %T", v)
	}
	return hex.DecodeString(strings.ToLower(text))
}

// appendMetadata writes the pickle of (type name, bytes, lengths of the frames or None).
func appendMetadata(name string, size int, lens []int) []byte {
	body := append([]byte{0x8c, byte(len(name))}, name...)
	body = appendPickled(append(body, 0x94), size)
	switch len(lens) {
	case 0:
		body = append(body, 0x4e)
	case 1:
		body = append(appendPickled(append(body, 0x5d, 0x94), lens[0]), 0x61)
	default:
		body = append(body, 0x5d, 0x94, 0x28)
		for _, n := range lens {
			body = appendPickled(body, n)
		}
		body = append(body, 0x65)
	}
	body = append(body, 0x87, 0x94, 0x2e)
	out := binary.LittleEndian.AppendUint64([]byte{0x80, 5, 0x95}, uint64(len(body)))
	return append(out, body...)
}

// appendPickled writes an integer of at least 0 and below 2^31.
func appendPickled(b []byte, n int) []byte {
	switch {
	case n <= math.MaxUint8:
		return append(b, 0x4b, byte(n))
	case n <= math.MaxUint16:
		return binary.LittleEndian.AppendUint16(append(b, 0x4d), uint16(n))
	}
	return binary.LittleEndian.AppendUint32(append(b, 0x4a), uint32(n))
}

// appendUint writes an integer as MessagePack.
func appendUint(b []byte, n uint64) []byte {
	switch {
	case n < 1<<7:
		return append(b, byte(n))
	case n <= math.MaxUint8:
		return append(b, 0xcc, byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, 0xcd), uint16(n))
	case n <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(b, 0xce), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(b, 0xcf), n)
}

// appendExtension writes the head of an extension of type 3 in MessagePack.
func appendExtension(b []byte, n int) []byte {
	for i, size := range []int{1, 2, 4, 8, 16} {
		if n == size {
			return append(b, 0xd4+byte(i), 3)
		}
	}
	switch {
	case n <= math.MaxUint8:
		return append(b, 0xc7, byte(n), 3)
	case n <= math.MaxUint16:
		return append(binary.BigEndian.AppendUint16(append(b, 0xc8), uint16(n)), 3)
	}
	return append(binary.BigEndian.AppendUint32(append(b, 0xc9), uint32(n)), 3)
}
