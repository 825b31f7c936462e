package serde

import (
	"errors"
	"fmt"

	"github.com/ringcache/ringcache/internal/codec"
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

// Signature is the HMAC-SHA256 that binds a handle to the key of its object. The zero
// value stands for no signature.
type Signature [32]byte

// IsZero reports whether there is no signature.
func (s Signature) IsZero() bool { return s == Signature{} }

// Address is the handle of an object in shared memory, which travels to the
// workers in place of the item. Two of them are equal if they are the same handle.
type Address struct {
	Address   uint64    // logical address of the chunk
	ID        uint32    // its monotonic id
	Signature Signature // zero in generations without signatures
}

// ErrBadSignature is the error of [ParseAddress] for an item whose signature, or
// what it signs, is missing or has the wrong form. The error is an [ErrCorrupt], too,
// and its text is vLLM's.
var ErrBadSignature = errors.New("serde: bad signature of an address item")

type signatureError string

func (e signatureError) Error() string { return string(e) }

func (signatureError) Unwrap() []error { return []error{ErrBadSignature, ErrCorrupt} }

// Missing reports whether the signature, or the id that it signs, is not there at all.
func (e signatureError) Missing() bool { return e == missingSignature }

const (
	missingSignature signatureError = "Missing SHM handle signature for cache key."
	invalidSignature signatureError = "Invalid SHM handle signature for cache key."
)

// NewAddressItem returns the item that stands for a, with a signature if a has
// one. The modality matters only to generations whose items carry one.
func NewAddressItem(a Address, modality string) *Item {
	elems := make([]Elem, 2, 3)
	elems[0] = Elem{Key: keyAddress, Data: unsigned(a.Address)}
	elems[1] = Elem{Key: keyID, Data: int64(a.ID)}
	if !a.Signature.IsZero() {
		l := make([]any, len(a.Signature))
		for i, b := range a.Signature {
			l[i] = int64(b)
		}
		elems = append(elems, Elem{Key: keySignature, Data: l})
	}
	return &Item{Modality: modality, Elems: elems}
}

func unsigned(u uint64) any {
	if u > 1<<63-1 {
		return u
	}
	return int64(u)
}

// ParseAddress reads the handle out of an item; ok is false when the item has
// no elem "address" and so is none. In a generation without signatures two elems are
// enough and a third is not looked at. In one with signatures a list that can't be a
// signature is refused: where vLLM's receiver passes a list of another length on to
// its verification, which fails, the text is that of the verification.
//
// The error wraps [ErrCorrupt], and in a generation with signatures
// [ErrBadSignature].
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
		return Address{}, true, missingSignature
	}
	bad := func(key, want string) error {
		if g.Signed {
			return invalidSignature
		}
		return &codec.CorruptError{
			What: fmt.Sprintf("address item, elem %q", key), Offset: -1, Want: want, Got: "something else",
		}
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
		if a.Signature, ok = signatureOf(sig.Data); !ok {
			return Address{}, true, invalidSignature
		}
	}
	return a, true, nil
}

// unsignedOf takes exactly an int, as Python's check does: no bool, no float.
func unsignedOf(d any) (uint64, bool) {
	switch d := d.(type) {
	case int:
		return uint64(d), d >= 0
	case int64:
		return uint64(d), d >= 0
	case uint64:
		return d, true
	}
	return 0, false
}

// signatureOf takes exactly a list of 32 bytes. Zeros alone are refused, too: they are
// no HMAC that anybody will see, and must not pass for a missing signature.
func signatureOf(d any) (s Signature, ok bool) {
	l, ok := d.([]any)
	if !ok || len(l) != len(s) {
		return Signature{}, false
	}
	for i, d := range l {
		n, ok := unsignedOf(d)
		if !ok || n > 255 {
			return Signature{}, false
		}
		s[i] = byte(n)
	}
	return s, !s.IsZero()
}
