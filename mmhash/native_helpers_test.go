package mmhash

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"sort"
	"strings"
)

// nativeInput is what NativeKey is given.
type nativeInput struct {
	Scope  Scope
	UUID   string
	Item   any
	Kwargs []Entry
}

func (in nativeInput) stream() ([]byte, error) {
	var b bytes.Buffer
	n := newNative()
	n.reset(&b)
	err := n.write(in.Scope, in.UUID, in.Item, in.Kwargs)
	return b.Bytes(), err
}

// canonical is the input as it is in its stream: maps sorted, integers of one
// kind, nil written out.
func (in nativeInput) canonical() nativeInput {
	in.Item, in.Kwargs = canonical(in.Item), canonical(in.Kwargs).([]Entry)
	return in
}

func canonical(v any) any {
	switch v := v.(type) {
	case nil:
		return nil
	case uint64:
		if v <= math.MaxInt64 {
			return int64(v)
		}
	case []any:
		out := []any{}
		for _, x := range v {
			out = append(out, canonical(x))
		}
		return out
	case []Entry:
		out := []Entry{}
		for _, e := range v {
			out = append(out, Entry{e.Key, canonical(e.Value)})
		}
		sort.Slice(out, func(i, j int) bool { return out[i].Key < out[j].Key })
		return out
	case *Image:
		c := *v
		if c.Palette != nil && c.Palette.Type == "" { // which is "bytes"
			p := *c.Palette
			p.Type = "bytes"
			c.Palette = &p
		}
		return &c
	case *EncodedImage:
		c := *v
		c.IOConfig = canonical(c.IOConfig).([]Entry)
		if c.Pixels != nil {
			c.Pixels = canonical(c.Pixels).(*Image)
		}
		return &c
	case *EncodedVideo:
		c := *v
		if c.Frames == nil {
			c.Frames = nil
		}
		return &c
	}
	return v
}

// nativeReader reads a native stream back. It shares nothing with the writer
// but the tags.
type nativeReader struct {
	b     []byte
	bad   bool
	depth int
}

func (r *nativeReader) take(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.b, r.bad = nil, true
		return nil
	}
	out := r.b[:n:n]
	r.b = r.b[n:]
	return out
}

func (r *nativeReader) uint64() uint64 {
	if b := r.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (r *nativeReader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0xff
}

func (r *nativeReader) bytes() []byte { return r.take(r.uint64()) }
func (r *nativeReader) text() string  { return string(r.bytes()) }

func (r *nativeReader) optional() []byte {
	if r.byte() == nativeNone {
		return nil
	}
	return r.bytes()
}

func (r *nativeReader) id() *[16]byte {
	b := r.optional()
	if b == nil {
		return nil
	}
	if len(b) != 16 {
		r.bad = true
		return nil
	}
	return (*[16]byte)(b)
}

func (r *nativeReader) dense() (name string, shape []int, data []byte) {
	name = r.text()
	for n := r.uint64(); n > 0 && !r.bad; n-- {
		shape = append(shape, int(r.uint64()))
	}
	return name, shape, r.bytes()
}

func (r *nativeReader) paletteType() string {
	if b := r.byte(); b < 3 {
		return []string{"bytes", "list", "bytearray"}[b]
	}
	r.bad = true
	return ""
}

func (r *nativeReader) value() any {
	if r.depth++; r.depth > 200 {
		r.bad = true
	}
	defer func() { r.depth-- }()
	if r.bad {
		return nil
	}
	switch tag := r.byte(); tag {
	case nativeNone:
		return nil
	case nativeFalse, nativeTrue:
		return tag == nativeTrue
	case nativeInt:
		return int64(r.uint64())
	case nativeUint:
		return r.uint64()
	case nativeFloat:
		return math.Float64frombits(r.uint64())
	case nativeStr:
		return r.text()
	case nativeBytes:
		return r.bytes()
	case nativePickled:
		return Pickled(r.bytes())
	case nativeList:
		out := []any{}
		for n := r.uint64(); n > 0 && !r.bad; n-- {
			out = append(out, r.value())
		}
		return out
	case nativeMap:
		out := []Entry{}
		for n := r.uint64(); n > 0 && !r.bad; n-- {
			k := r.text()
			out = append(out, Entry{k, r.value()})
		}
		return out
	case nativeArray:
		name, shape, data := r.dense()
		return &Array{name, shape, data}
	case nativeTensor:
		name, shape, data := r.dense()
		return &Tensor{name, shape, data}
	case nativeImage:
		m := &Image{}
		var size []int
		m.Mode, size, m.Pixels = r.dense()
		if len(size) != 2 {
			r.bad = true
			return nil
		}
		m.Height, m.Width = size[0], size[1]
		if r.byte() == nativePalette {
			m.Palette = &Palette{Type: r.paletteType()}
			m.Palette.Bytes, m.Palette.RawMode = r.bytes(), r.text()
		}
		m.ID = r.id()
		return m
	case nativeEncodedImage:
		m := &EncodedImage{Data: r.optional()}
		m.IOConfig, _ = r.value().([]Entry)
		m.Pixels, _ = r.value().(*Image)
		m.ID = r.id()
		return m
	case nativeEncodedVideo:
		return &EncodedVideo{Data: r.optional(), Frames: r.value()}
	}
	r.bad = true
	return nil
}

func readNative(b []byte) (in nativeInput, whole bool) {
	r := nativeReader{b: b}
	in.Scope = Scope{r.text(), r.text(), r.text()}
	in.UUID, in.Item = r.text(), r.value()
	in.Kwargs, _ = r.value().([]Entry)
	return in, !r.bad && len(r.b) == 0
}

// show prints values differently that Go prints alike.
func show(in nativeInput) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%q %q", in.Scope, in.UUID)
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case float64:
			fmt.Fprintf(&b, " float:%x", math.Float64bits(float64(v)))
		case []any:
			fmt.Fprintf(&b, " list:%d", len(v))
			for _, x := range v {
				walk(x)
			}
		case []Entry:
			fmt.Fprintf(&b, " map:%d", len(v))
			for _, e := range v {
				fmt.Fprintf(&b, " %q", e.Key)
				walk(e.Value)
			}
		case *Image:
			fmt.Fprintf(&b, " image:%q %d %d %q %v %v", v.Mode, v.Width, v.Height, v.Pixels, v.Palette, v.ID)
		case *EncodedImage:
			fmt.Fprintf(&b, " file:%q %v", v.Data, v.ID)
			walk(v.IOConfig)
			if v.Pixels != nil {
				walk(v.Pixels)
			}
		case *EncodedVideo:
			fmt.Fprintf(&b, " video:%q", v.Data)
			walk(v.Frames)
		default:
			fmt.Fprintf(&b, " %T:%q", v, fmt.Sprint(v))
		}
	}
	walk(in.Item)
	walk(in.Kwargs)
	return b.String()
}
