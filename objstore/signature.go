package objstore

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"

	"github.com/ringcache/ringcache/serde"
)

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
func verify(secret []byte, key string, h serde.Address) error {
	return sign(secret, key, h.Address, h.ID).verify(key, h)
}

// verify compares the signature with that of a handle in constant time.
func (s signature) verify(key string, h serde.Address) error {
	if h.Signature.IsZero() {
		return &SignatureError{Key: key, Missing: true}
	}
	if !hmac.Equal(h.Signature[:], s[:]) {
		return &SignatureError{Key: key}
	}
	return nil
}

// keyed is a store with objects under keys.
type keyed interface {
	// current returns the handle of the object under a key.
	current(key string) (h serde.Address, ok bool, err error)
}

// verifyCurrent is Verify of either store.
func verifyCurrent(s keyed, key string, h serde.Address) error {
	current, ok, err := s.current(key)
	switch {
	case err != nil:
		return err
	case !ok || current.Address != h.Address || current.ID != h.ID:
		return &SignatureError{Key: key}
	case current.Signature.IsZero(): // the generation has none
		return nil
	}
	return signature(current.Signature).verify(key, h)
}

// verifyItem is VerifyItem of either store.
func verifyItem(s Store, c chunks, key string, it *serde.Item) error {
	h, ok, err := serde.ParseAddress(it, c.options)
	switch {
	case err != nil:
		return errors.Join(&SignatureError{Key: key}, err)
	case ok:
		return s.Verify(key, h)
	}
	return nil
}
