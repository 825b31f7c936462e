package serde

import (
	"fmt"

	"github.com/ringcache/ringcache/pycompat"
)

// Keys of an address item
// (ShmObjectStoreSenderCache and -ReceiverCache in vllm/multimodal/cache.py,
// from 0.31.0 vllm/multimodal/cache/shm.py).
const (
	keyAddress   = "address"
	keyID        = "monotonic_id"
	keySignature = "signature"
)

// SignatureLen is the length of a signature in bytes.
const SignatureLen = 32

// Address is the handle of an object in shared memory, which travels to the
// workers in place of the item.
type Address struct {
	Address uint64 // logical address of the chunk
	ID      uint32 // its monotonic id
	// Signature is nil, or SignatureLen bytes. From ParseAddress it may have
	// another length, also 0: the peer sent a list, but not one of SignatureLen
	// bytes. Such a signature is present and never verifies.
	Signature []byte
}

type addressError string

func (e addressError) Error() string { return string(e) }
func (addressError) Unwrap() error   { return ErrCorrupt }

// Errors of [ParseAddress], with vLLM's texts. They wrap [ErrCorrupt].
var (
	ErrMissingSignature error = addressError("Missing SHM handle signature for cache key.")
	ErrInvalidSignature error = addressError("Invalid SHM handle signature for cache key.")
)

// NewAddressItem returns the item that stands for a, with a signature if a has
// one. The modality matters only to generations whose items carry one.
func NewAddressItem(a Address, modality string) *Item {
	elems := make([]Elem, 2, 3)
	elems[0] = Elem{Key: keyAddress, Data: unsigned(a.Address)}
	elems[1] = Elem{Key: keyID, Data: Int(a.ID)}
	if a.Signature != nil {
		l := make(List, len(a.Signature))
		for i, b := range a.Signature {
			l[i] = Int(b)
		}
		elems = append(elems, Elem{Key: keySignature, Data: l})
	}
	return &Item{Modality: modality, Elems: elems}
}

func unsigned(u uint64) Data {
	if u > 1<<63-1 {
		return Uint(u)
	}
	return Int(u)
}

// EncodeAddress returns the main document, and only frame, of the address item.
// A generation with signed handles needs a signature, any other must have none.
// The error wraps [ErrInvalid].
func EncodeAddress(a Address, modality string, o Options) ([]byte, error) {
	g, err := pycompat.Resolve(o.Generation)
	if err != nil {
		return nil, err
	}
	switch {
	case g.Signed && len(a.Signature) != SignatureLen:
		return nil, &InvalidError{"address item", fmt.Sprintf("the signature has %d bytes, vLLM %s needs %d", len(a.Signature), g.Version, SignatureLen)}
	case !g.Signed && a.Signature != nil:
		return nil, &InvalidError{"address item", fmt.Sprintf("vLLM %s does not know signatures; leave it nil", g.Version)}
	}
	e := newEncoder(o)
	e.item(NewAddressItem(a, modality), "")
	if e.err != nil {
		return nil, e.err
	}
	return e.buf.Bytes(), nil
}

// ParseAddress reads the handle out of an item; ok is false when the item has
// no elem "address" and so is none. Only the shape is checked, as vLLM's
// receiver does before it verifies: see Address.Signature for what may come out.
// In a generation without signatures two elems are enough and a third is not
// looked at.
//
// The error is [ErrMissingSignature] or [ErrInvalidSignature] in a generation
// with signatures, else a [*CorruptError]; each wraps [ErrCorrupt].
func ParseAddress(it *Item, o Options) (a Address, ok bool, err error) {
	g, err := pycompat.Resolve(o.Generation)
	if err != nil || it == nil {
		return Address{}, false, err
	}
	addr, ok := it.Lookup(keyAddress)
	if !ok {
		return Address{}, false, nil
	}
	id, hasID := it.Lookup(keyID)
	sig, hasSig := it.Lookup(keySignature)
	if g.Signed && (!hasID || !hasSig) {
		return Address{}, true, ErrMissingSignature
	}
	bad := func(key, want string) error {
		if g.Signed {
			return ErrInvalidSignature
		}
		return &CorruptError{What: fmt.Sprintf("address item, elem %q", key), Offset: -1, Want: want, Got: "something else"}
	}
	if !hasID {
		return Address{}, true, bad(keyID, "an elem")
	}
	if a.Address, ok = unsignedOf(addr.Data); !ok {
		return Address{}, true, bad(keyAddress, "an integer from 0 to 2^64-1")
	}
	n, ok := unsignedOf(id.Data)
	if !ok || n > 1<<32-1 {
		return Address{}, true, bad(keyID, "an integer from 0 to 2^32-1")
	}
	a.ID = uint32(n)
	if g.Signed {
		l, ok := sig.Data.(List)
		if !ok {
			return Address{}, true, bad(keySignature, "a list")
		}
		a.Signature = signatureBytes(l)
	}
	return a, true, nil
}

// unsignedOf takes exactly an int, as Python's check does: no bool, no float.
func unsignedOf(d Data) (uint64, bool) {
	switch d := d.(type) {
	case Int:
		return uint64(d), d >= 0
	case Uint:
		return uint64(d), true
	}
	return 0, false
}

// signatureBytes returns the list as bytes, or an empty slice when one entry is
// no byte. The result is never nil.
func signatureBytes(l List) []byte {
	out := make([]byte, 0, min(len(l), SignatureLen+1))
	for _, d := range l {
		n, ok := d.(Int)
		if !ok || n < 0 || n > 255 {
			return []byte{}
		}
		if len(out) <= SignatureLen { // one more than needed shows that it is too long
			out = append(out, byte(n))
		}
	}
	return out
}
