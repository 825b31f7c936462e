package mmhash

import (
	"encoding/hex"
	"encoding/json"
	"math/big"
	"sync"

	"github.com/ringcache/ringcache/internal/blake3"
	"github.com/ringcache/ringcache/pycompat"
)

// nativeContext keeps native keys apart from all other uses of BLAKE3.
const nativeContext = "ringcache/key/v1"

// Scope is who shares a native key, and what for. Equal content in different
// scopes has different keys.
type Scope struct {
	// Tenant is whoever must not see or spoil another's items; empty where
	// there is only one.
	Tenant string
	// Model names the model and whatever else decides on how items are
	// processed, such as a revision.
	Model string
	// Modality is "image", "video" and so on.
	Modality string
}

// NativeKey returns a cache key for those who need not agree with vLLM on it:
// 64 hexadecimal digits that depend on the scope, the UUID that the client gave
// the item (empty: none), the item (nil: none was sent) and the arguments of its
// processing. At least one of uuid and item is needed.
//
// Against vLLM's keys: a UUID never is the key itself, and is bound to the
// content where there is any, so that no client can name or replace an item of
// another tenant; two different inputs never share what is hashed, neither
// values of different type (0 and 0.0, "ab" and b"ab") nor by the way that
// strings are split; entries of maps and arguments have no order. All that is
// given of an item counts: an EncodedImage with Pixels and one without have
// different keys, and an ID replaces nothing. A [Reader] is the same as its bytes.
//
// Errors are those of [Hasher.Hex]. Python numbers beyond 64 bits and objects
// must be passed as text or [Pickled]. The bytes are in docs/format.md.
func NativeKey(scope Scope, uuid string, item any, kwargs ...Entry) (string, error) {
	if uuid == "" && item == nil {
		return "", &ValueError{Problem: "an item or a UUID is needed", sentinel: errInvalid}
	}
	h := nativeHashers.Get().(*nativeHasher)
	defer nativeHashers.Put(h)
	h.hash.Reset()
	h.form.reset(h.hash)
	if err := h.form.write(scope, uuid, item, kwargs); err != nil {
		return "", err
	}
	var sum [blake3.Size]byte
	var text [2 * blake3.Size]byte
	return string(hex.AppendEncode(text[:0], h.hash.Sum(sum[:0]))), nil
}

// nativeHasher keeps its memory from one key to the next.
type nativeHasher struct {
	hash *blake3.Hasher
	form native
}

var nativeHashers = sync.Pool{New: func() any {
	return &nativeHasher{blake3.NewDeriveKey(nativeContext), newNative()}
}}

// Tags of the native form.
const (
	nativeNone = iota
	nativeFalse
	nativeTrue
	nativeInt
	nativeUint
	nativeFloat
	nativeStr
	nativeBytes
	nativeList
	nativeMap
	nativeArray
	nativeTensor
	nativeImage
	nativeEncodedImage
	nativeEncodedVideo
	nativePickled
	nativePalette
)

// native writes values so that they could be read back: every one begins with
// a tag, and every part of variable length with its length.
type native struct{ stream }

func newNative() native { return native{stream{rules: pycompat.HashRules{Framed: true}}} }

func (n *native) write(scope Scope, uuid string, item any, kwargs []Entry) error {
	n.text(scope.Tenant)
	n.text(scope.Model)
	n.text(scope.Modality)
	n.text(uuid)
	n.value(item)
	n.entries(kwargs)
	n.flush()
	return n.err
}

func (n *native) value(v any) {
	switch v := v.(type) {
	case nil:
		n.byte(nativeNone)
	case bool:
		if v {
			n.byte(nativeTrue)
		} else {
			n.byte(nativeFalse)
		}
	case int:
		n.tagged(nativeInt, uint64(v))
	case int64:
		n.tagged(nativeInt, uint64(v))
	case uint64:
		if v <= 1<<63-1 { // Python has one kind of integer
			n.tagged(nativeInt, v)
		} else {
			n.tagged(nativeUint, v)
		}
	case *big.Int:
		n.number(bigInt(v))
	case json.Number:
		n.number(jsonNumber(v))
	case float64:
		n.tagged(nativeFloat, floatBits(v))
	case string:
		n.byte(nativeStr)
		n.text(v)
	case []byte:
		n.part(nativeBytes, v)
	case *Reader:
		if v == nil {
			n.fail(errInvalid, "it is a nil *Reader")
			return
		}
		n.data(nil, v)
	case Pickled:
		n.part(nativePickled, v)
	case []any:
		if !n.deeper() {
			return
		}
		n.tagged(nativeList, uint64(len(v)))
		for i := 0; i < len(v) && n.err == nil; i++ {
			n.value(v[i])
		}
		n.depth--
	case []Entry:
		n.entries(v)
	default:
		n.media(v)
	}
}

func (n *native) entries(m []Entry) {
	if !n.deeper() {
		return
	}
	n.tagged(nativeMap, uint64(len(m)))
	var local [16]int
	order := byName(local[:0], m)
	for i := 0; i < len(m) && n.err == nil; i++ {
		e := m[order[i]]
		if i > 0 && m[order[i-1]].Key == e.Key {
			n.fail(errInvalid, "the name %s is given twice in a map", quote(e.Key))
			return
		}
		n.text(e.Key)
		n.value(e.Value)
	}
	n.depth--
}

func (n *native) media(v any) {
	switch v := v.(type) {
	case *Array:
		if v != nil {
			n.dense(nativeArray, v.DType, v.Shape, v.Data)
			return
		}
	case *Tensor:
		if v != nil {
			n.dense(nativeTensor, v.DType, v.Shape, v.Data)
			return
		}
	case *Image:
		if v != nil {
			n.dense(nativeImage, v.Mode, []int{v.Height, v.Width}, v.Pixels)
			if p := v.Palette; p == nil {
				n.byte(nativeNone)
			} else {
				n.byte(nativePalette)
				n.byte(n.paletteType(p))
				n.length(int64(len(p.Bytes)))
				n.raw(p.Bytes)
				n.text(p.RawMode)
			}
			n.id(v.ID)
			return
		}
	case *EncodedImage:
		if v != nil {
			n.byte(nativeEncodedImage)
			n.data(v.Data, v.Reader)
			n.entries(v.IOConfig)
			if v.Pixels == nil {
				n.byte(nativeNone)
			} else {
				n.media(v.Pixels)
			}
			n.id(v.ID)
			return
		}
	case *EncodedVideo:
		if v != nil {
			n.byte(nativeEncodedVideo)
			n.data(v.Data, v.Reader)
			switch f := v.Frames.(type) {
			case nil:
				n.byte(nativeNone)
			case *Array, *Tensor:
				n.media(f)
			default:
				n.fail(errInvalid, framesProblem, typeName(f))
			}
			return
		}
	default:
		n.refuse(v)
		return
	}
	n.fail(errInvalid, "it is a nil %s", typeName(v))
}

// number writes an int64, a uint64 or a float64.
func (n *native) number(v any, err error) {
	if err != nil {
		if n.err == nil {
			n.err = err
		}
		return
	}
	n.value(v)
}

func (n *native) tagged(tag byte, x uint64) {
	n.byte(tag)
	n.uint64(x)
}

func (n *native) part(tag byte, b []byte) {
	n.byte(tag)
	n.length(int64(len(b)))
	n.raw(b)
}

// data writes bytes, or what a Reader delivers, or nothing at all.
func (n *native) data(b []byte, in *Reader) {
	switch {
	case in != nil:
		n.byte(nativeBytes)
		n.length(in.N)
		n.read(in)
	case b == nil:
		n.byte(nativeNone)
	default:
		n.part(nativeBytes, b)
	}
}

// dense writes a type, a shape and data, which are taken as they are.
func (n *native) dense(tag byte, name string, shape []int, data []byte) {
	n.byte(tag)
	n.text(name)
	n.uint64(uint64(len(shape)))
	for _, d := range shape {
		n.uint64(uint64(d))
	}
	n.length(int64(len(data)))
	n.raw(data)
}

func (n *native) id(id *[16]byte) {
	if id == nil {
		n.byte(nativeNone)
		return
	}
	n.part(nativeBytes, id[:])
}
