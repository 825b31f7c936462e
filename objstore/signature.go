package objstore

import (
	"crypto/subtle"
	"errors"

	"github.com/ringcache/ringcache/serde"
)

// verifySignature compares the signature of a handle with the right one for its key, in
// constant time.
func verifySignature(right serde.Signature, key string, h *serde.Address) error {
	if h.Signature.IsZero() {
		return &SignatureError{Key: key, Missing: true}
	}
	if subtle.ConstantTimeCompare(h.Signature[:], right[:]) != 1 {
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
	return verifySignature(current.Signature, key, &h)
}

// verifyItem is VerifyItem of either store.
func verifyItem(s Store, c *chunks, key string, it *serde.Item) error {
	h, ok, err := serde.ParseAddress(it, c.options)
	switch {
	case err != nil:
		missing := interface{ Missing() bool }(nil) // serde's error of a bad signature
		return errors.Join(&SignatureError{Key: key, Missing: errors.As(err, &missing) && missing.Missing()}, err)
	case ok:
		return s.Verify(key, h)
	}
	return nil
}
