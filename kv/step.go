package kv

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/fxamacker/cbor/v2"

	"github.com/ringcache/ringcache/internal/blake3"
)

// maxKept is how large a buffer may be that is kept for the next request.
const maxKept = 1 << 20

// scratch is what hashing needs besides a chain. One goroutine uses it at a time.
type scratch struct {
	packed []byte
	blake3 *blake3.Hasher
	cbor   bytes.Buffer
	block  block
	folded folded
	tuple  []int64
}

func newScratch(s Scheme) *scratch {
	if s.Algorithm == BLAKE3 {
		return &scratch{blake3: blake3.New()}
	}
	return &scratch{block: block{Tokens: []uint32{}}} // nil is no empty list in CBOR
}

// block is the tuple under a hash: the hash in front, the tokens, the extra keys.
type block struct {
	_        struct{} `cbor:",toarray"`
	Previous []byte
	Tokens   []uint32
	Extra    cbor.RawMessage
}

// folded is the same in the legacy form.
type folded struct {
	_        struct{} `cbor:",toarray"`
	Previous uint64
	Tokens   []uint32
	Extra    cbor.RawMessage
}

var (
	canonical = func() cbor.UserBufferEncMode {
		m, err := cbor.CanonicalEncOptions().UserBufferEncMode()
		if err != nil {
			panic(err) // the options are the library's own
		}
		return m
	}()
	cborNull  = cbor.RawMessage{0xf6}
	cborEmpty = cbor.RawMessage{0x80}
)

// step appends the hash of one chunk to dst. extra is CBOR, or nil for no extra keys.
func (h *Hasher) step(s *scratch, dst, previous, chunk, extra []byte) ([]byte, error) {
	switch h.scheme.Algorithm {
	case BLAKE3:
		s.blake3.Reset()
		_, _ = s.blake3.Write(previous)
		_, _ = s.blake3.Write(chunk)
		return s.blake3.Sum(dst), nil
	case Builtin:
		s.tuple = s.tuple[:0]
		for ; len(chunk) > 0; chunk = chunk[tokenSize:] {
			s.tuple = append(s.tuple, int64(binary.BigEndian.Uint32(chunk)))
		}
		n := hashChunk(int64(binary.BigEndian.Uint64(previous)), s.tuple)
		return binary.BigEndian.AppendUint64(dst, uint64(n)), nil
	}
	if err := h.encode(s, previous, chunk, extra); err != nil {
		return nil, err
	}
	end := len(dst) + h.size
	return h.digest(dst, s.cbor.Bytes())[:end], nil // the legacy form is the front of a digest
}

// encode writes the CBOR under a hash to s.cbor.
func (h *Hasher) encode(s *scratch, previous, chunk, extra []byte) error {
	s.cbor.Reset()
	tokens := s.block.Tokens[:0]
	for ; len(chunk) > 0; chunk = chunk[tokenSize:] {
		tokens = append(tokens, binary.BigEndian.Uint32(chunk))
	}
	s.block.Tokens = tokens
	if h.scheme.Legacy {
		s.folded = folded{Previous: binary.BigEndian.Uint64(previous), Tokens: tokens, Extra: cborEmpty}
		return canonical.MarshalToBuffer(&s.folded, &s.cbor)
	}
	s.block.Previous, s.block.Extra = previous, extra
	if extra == nil {
		s.block.Extra = cborNull
	}
	return canonical.MarshalToBuffer(&s.block, &s.cbor)
}

func (h *Hasher) digest(dst, text []byte) []byte {
	if h.scheme.Algorithm == XXHashCBOR {
		return xxh3Sum(dst, text)
	}
	sum := sha256.Sum256(text)
	return append(dst, sum[:]...)
}

// maxExtra bounds the extra keys of a block, in bytes of CBOR.
const maxExtra = 1 << 20

func encodeExtra(extra []any) ([]byte, error) {
	if len(extra) == 0 {
		return nil, nil
	}
	if err := checkExtra(extra, 0); err != nil {
		return nil, err
	}
	b, err := canonical.Marshal(extra)
	if err == nil && len(b) > maxExtra {
		err = fmt.Errorf("extra keys of %d bytes; the most is %d", len(b), maxExtra)
	}
	return b, err
}

// checkExtra refuses what vLLM has not in its keys, and what the two libraries might write differently.
func checkExtra(keys []any, depth int) error {
	for _, k := range keys {
		switch k := k.(type) {
		case nil, int, []byte:
		case string:
			if !utf8.ValidString(k) {
				return fmt.Errorf("the extra key %q is no UTF-8", k)
			}
		case []any:
			if depth > 0 {
				return errors.New("extra keys are nested more than once")
			}
			if err := checkExtra(k, depth+1); err != nil {
				return err
			}
		default:
			return fmt.Errorf("an extra key is a %T", k)
		}
	}
	return nil
}
