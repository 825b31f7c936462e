package mmhash

import (
	"math"

	"pgregory.net/rapid"
)

// Generators. Alphabets are small, so that pairs come close to each other.

var (
	drawText  = rapid.StringMatching(`[ab0.]{0,3}`)
	drawBytes = rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 'a', 'b'}), 0, 4), func(b []byte) []byte { return append([]byte{}, b...) })
	drawShape = rapid.SliceOfN(rapid.IntRange(0, 2), 0, 3)
)

func drawID(t *rapid.T) *[16]byte {
	if rapid.Bool().Draw(t, "id?") {
		return &[16]byte{rapid.Byte().Draw(t, "id")}
	}
	return nil
}

func drawDense(t *rapid.T, names ...string) (string, []int, []byte) {
	return rapid.SampledFrom(names).Draw(t, "type"), drawShape.Draw(t, "shape"), drawBytes.Draw(t, "data")
}

func drawMap(t *rapid.T, depth int) []Entry {
	out, seen := []Entry{}, map[string]bool{}
	for range rapid.IntRange(0, 3).Draw(t, "entries") {
		if k := drawText.Draw(t, "key"); !seen[k] {
			seen[k] = true
			out = append(out, Entry{k, drawValue(t, depth-1)})
		}
	}
	return out
}

func drawImage(t *rapid.T) *Image {
	m := &Image{Width: rapid.IntRange(0, 2).Draw(t, "w"), Height: rapid.IntRange(0, 2).Draw(t, "h"), ID: drawID(t)}
	m.Mode, _, m.Pixels = drawDense(t, "L", "P", "1")
	if rapid.Bool().Draw(t, "palette?") {
		m.Palette = &Palette{rapid.SampledFrom([]string{"bytes", "list", "bytearray"}).Draw(t, "kind"), drawBytes.Draw(t, "palette"), drawText.Draw(t, "rawmode")}
	}
	return m
}

func drawValue(t *rapid.T, depth int) any {
	top := 13
	if depth <= 0 {
		top = 11
	}
	switch rapid.IntRange(0, top).Draw(t, "kind") {
	case 0:
		return nil
	case 1:
		return rapid.Bool().Draw(t, "bool")
	case 2:
		return rapid.SampledFrom([]int64{0, 1, -1, math.MinInt64, 97}).Draw(t, "int")
	case 3:
		return rapid.SampledFrom([]uint64{0, 1, 1 << 63, math.MaxUint64}).Draw(t, "uint")
	case 4:
		return rapid.SampledFrom([]float64{0, math.Copysign(0, -1), 1, math.Inf(1), 5e-324}).Draw(t, "float")
	case 5:
		return drawText.Draw(t, "str")
	case 6:
		return drawBytes.Draw(t, "bytes")
	case 7:
		return Pickled(drawBytes.Draw(t, "pickle"))
	case 8:
		name, shape, data := drawDense(t, "|u1", "<f4")
		return &Array{name, shape, data}
	case 9:
		name, shape, data := drawDense(t, "uint8", "bfloat16")
		return &Tensor{name, shape, data}
	case 10:
		return drawImage(t)
	case 11:
		if rapid.Bool().Draw(t, "video") {
			name, shape, data := drawDense(t, "|u1", "<f4")
			return &EncodedVideo{Data: drawBytes.Draw(t, "file"), Frames: &Array{name, shape, data}}
		}
		m := &EncodedImage{Data: drawBytes.Draw(t, "file"), IOConfig: drawMap(t, 0), ID: drawID(t)}
		if rapid.Bool().Draw(t, "pixels?") {
			m.Pixels = drawImage(t)
		}
		return m
	case 12:
		out := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "elements") {
			out = append(out, drawValue(t, depth-1))
		}
		return out
	}
	return drawMap(t, depth)
}

func drawNative(t *rapid.T) nativeInput {
	s := drawText
	return nativeInput{Scope{s.Draw(t, "tenant"), s.Draw(t, "model"), s.Draw(t, "modality")}, s.Draw(t, "uuid"), drawValue(t, 3), drawMap(t, 2)}
}
