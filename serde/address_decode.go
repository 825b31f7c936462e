package serde

import (
	"unicode/utf8"

	"github.com/tinylib/msgp/msgp"

	"github.com/ringcache/ringcache/pycompat"
)

// DecodeAddress is [DecodeItem] and [ParseAddress] at once: ok is false for an item that
// is no address. It builds no item for the document that [EncodeAddress] or vLLM writes,
// with its elems in any order, and allocates nothing then.
func DecodeAddress(frames [][]byte, o Options) (a Address, ok bool, err error) {
	g, err := pycompat.Resolve(o.Generation)
	if err != nil {
		return Address{}, false, err
	}
	if len(frames) == 1 {
		r := addressReader{doc: frames[0], form: g.ItemForm}
		if r.item(g.Signed) {
			return r.a, true, nil
		}
	}
	it, err := DecodeItem(frames, o)
	if err != nil {
		return Address{}, false, err
	}
	return ParseAddress(it, o)
}

// addressReader reads an address item as it is usually written. Whatever is unusual, also
// if it is right, is left to [DecodeItem].
type addressReader struct {
	doc      []byte // what is left
	form     pycompat.ItemForm
	modality []byte // of the first elem
	a        Address
}

func (r *addressReader) literal(s string) bool {
	if len(r.doc) < len(s) || string(r.doc[:len(s)]) != s {
		return false
	}
	r.doc = r.doc[len(s):]
	return true
}

func (r *addressReader) item(signed bool) bool {
	all, n := seenAddress|seenID, byte(2)
	if signed {
		all, n = all|seenSignature, 3
	}
	head := 0x90 | n
	if r.form == pycompat.ItemMap {
		head = 0x80 | n
	}
	if len(r.doc) == 0 || r.doc[0] != head {
		return false
	}
	r.doc = r.doc[1:]
	seen := 0
	for range n {
		seen |= r.elem()
	}
	return seen == all && len(r.doc) == 0
}

const (
	seenAddress = 1 << iota
	seenID
	seenSignature
)

// elem reads an elem and returns which it is, or 0.
func (r *addressReader) elem() (which int) {
	if r.form != pycompat.ItemMap && !r.sameModality() {
		return 0
	}
	switch {
	case r.literal(textAddress):
		which = seenAddress
	case r.literal(textID):
		which = seenID
	case r.literal(textSignature):
		which = seenSignature
	default:
		return 0
	}
	data, field := textData, textField+batchedNamed
	switch r.form {
	case pycompat.ItemMap:
		data = "\x82" + textData
	case pycompat.ItemPositional:
		field = textField + batchedPositional
	}
	if !r.literal(data) || !r.data(which) || !r.literal(field) {
		return 0
	}
	return which
}

// sameModality reads what comes before the key, and reports whether the modality is that
// of the elems before.
func (r *addressReader) sameModality() bool {
	if !r.literal("\x84" + textModality) {
		return false
	}
	modality, rest, err := msgp.ReadStringZC(r.doc)
	if err != nil || !utf8.Valid(modality) {
		return false
	}
	r.doc = rest
	if r.modality == nil {
		r.modality = modality
	}
	return string(modality) == string(r.modality) && r.literal(textKey)
}

func (r *addressReader) data(which int) bool {
	if which == seenSignature {
		return r.signature()
	}
	n, rest, err := msgp.ReadUint64Bytes(r.doc)
	if err != nil {
		return false
	}
	r.doc = rest
	if which == seenAddress {
		r.a.Address = n
		return true
	}
	r.a.ID = uint32(n)
	return n <= 1<<32-1
}

func (r *addressReader) signature() bool {
	if !r.literal(signatureHead) {
		return false
	}
	for i := range r.a.Signature {
		n, rest, err := msgp.ReadUint64Bytes(r.doc)
		if err != nil || n > 255 {
			return false
		}
		r.a.Signature[i] = byte(n)
		r.doc = rest
	}
	return !r.a.Signature.IsZero()
}
