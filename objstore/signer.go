package objstore

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"sync"

	"github.com/ringcache/ringcache/serde"
)

// secretSize is the length in bytes of a segment's secret.
const secretSize = 32

// signer computes the signatures of a segment. Its HMAC states have their key set
// already: setting it takes as long as all the rest. It may be used by any number of
// goroutines.
type signer struct{ states sync.Pool } // of *signingState

// signingState is one HMAC state, and the memory for what goes in and out.
type signingState struct {
	secret [secretSize]byte
	mac    hash.Hash // under secret; nil at first
	buf    []byte
}

// sign computes the signature of a handle for a key (shm_object_storage.py,
// 0.32.0 and 0.33.0): HMAC-SHA256 under the segment's secret over the SHA-256
// of the key, the address as 8 bytes and the id as 4, both little-endian.
//
// The secret is that of the segment at this moment, since others can write there.
func (s *signer) sign(secret []byte, key string, address uint64, id uint32) (out serde.Signature) {
	st, _ := s.states.Get().(*signingState)
	if st == nil {
		st = new(signingState)
	}
	if now := [secretSize]byte(secret); st.mac == nil || st.secret != now {
		st.secret = now
		st.mac = hmac.New(sha256.New, st.secret[:])
	} else {
		st.mac.Reset()
	}
	st.buf = append(st.buf[:0], key...)
	k := sha256.Sum256(st.buf)
	st.buf = append(st.buf[:0], k[:]...)
	st.buf = binary.LittleEndian.AppendUint64(st.buf, address)
	st.buf = binary.LittleEndian.AppendUint32(st.buf, id)
	st.mac.Write(st.buf)
	st.buf = st.mac.Sum(st.buf[:0])
	out = serde.Signature(st.buf)
	s.states.Put(st)
	return out
}

// sign returns the signature of a handle for a key, zero in generations without. It is
// called in a guard.
func (c *chunks) sign(key string, address uint64, id uint32) (s serde.Signature) {
	if c.options.Generation.Signed {
		s = c.signer.sign(c.seg.Secret(), key, address, id)
	}
	return s
}
