package objstore

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"

	"github.com/ringcache/ringcache/serde"
)

// Handle is where an object is: what travels to the readers instead of its
// bytes. The signature, 32 bytes, is there in generations that have one and nil
// in the others.
type Handle = serde.Address

// signature is what makes a handle one of its key.
type signature [sha256.Size]byte

// sign computes the signature of a handle for a key (shm_object_storage.py,
// 0.32.0 and 0.33.0): HMAC-SHA256 under the segment's secret over the SHA-256
// of the key, the address as 8 bytes and the id as 4, both little-endian.
func sign(secret []byte, key string, address uint64, id uint32) (s signature) {
	k := sha256.Sum256([]byte(key))
	msg := binary.LittleEndian.AppendUint64(k[:], address)
	msg = binary.LittleEndian.AppendUint32(msg, id)
	mac := hmac.New(sha256.New, secret)
	mac.Write(msg)
	mac.Sum(s[:0])
	return s
}

// verify checks the signature of a handle in constant time.
func verify(secret []byte, key string, h Handle) error {
	return sign(secret, key, h.Address, h.ID).verify(key, h)
}

// verify compares the signature with that of a handle in constant time.
func (s signature) verify(key string, h Handle) error {
	if h.Signature == nil {
		return &SignatureError{Key: key, Missing: true}
	}
	if !hmac.Equal(h.Signature, s[:]) {
		return &SignatureError{Key: key}
	}
	return nil
}

// ValidateItem checks an item that a client supplied before it is handed to the
// engine: one that claims to be an address must be the current one of its key,
// else it would show the client another client's object. Other items pass. It
// counts no use.
func ValidateItem(s Store, it *serde.Item, key string) error {
	a, ok, err := serde.ParseAddress(it, serde.Options{Generation: s.Generation()})
	if err != nil {
		return errors.Join(&SignatureError{Key: key}, err)
	}
	if !ok {
		return nil
	}
	return s.Verify(key, a)
}
