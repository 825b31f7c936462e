package model

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
)

// handleOf returns the fields address and id. given: there are both.
func (m *Store) handleOf(a *args) (h handle, given bool, err error) {
	if _, ok := a.fields["address"]; !ok {
		return handle{}, false, nil
	}
	id, ok := a.integer("id")
	if !ok || id < 0 || id > math.MaxUint32 {
		return handle{}, false, invalid("id %v", a.fields["id"])
	}
	h.id = uint32(id)
	// 0.11.0 gives out addresses below 0. vLLM also takes those from 2^63 on, as numbers of
	// any size that lead nowhere; the model refuses them.
	address, ok := a.integer("address")
	h.address = int(address)
	if !ok || address < 0 && m.release.Signed {
		return handle{}, false, invalid("address %v", a.fields["address"])
	}
	return h, true, nil
}

// sign returns the signature of a handle (docs/format.md, address item).
func (g *segment) sign(key string, h handle) []byte {
	sum := sha256.Sum256([]byte(key))
	message := binary.LittleEndian.AppendUint64(sum[:], uint64(h.address))
	message = binary.LittleEndian.AppendUint32(message, h.id)
	mac := hmac.New(sha256.New, g.secret)
	mac.Write(message)
	return mac.Sum(nil)
}

func (m *Store) signature(s *store, a *args) (map[string]any, error) {
	h, err := s.find(a)
	if err != nil {
		return nil, err
	}
	if !m.release.Signed {
		return nil, refuse("unsupported", "vLLM %s has no signatures", m.release.Version)
	}
	return map[string]any{"signature": hex.EncodeToString(s.sign(a.text("key"), h))}, nil
}

func (m *Store) verify(s *store, a *args) (map[string]any, error) {
	h, given, err := m.handleOf(a)
	if err != nil || !given {
		return nil, invalid("verify needs address and id: %v", err)
	}
	return nil, m.check(s, a, h)
}

// check verifies a handle: a writer compares it with its table first.
func (m *Store) check(s *store, a *args, h handle) error {
	wrong := refuseAsVLLM("bad_signature", "Invalid SHM handle signature for cache key.")
	key, there := a.fields["key"].(string)
	if s.writes && (!there || s.handles[key] != h || s.keys[h.id] != key) {
		return wrong
	}
	if !m.release.Signed {
		return nil
	}
	given, ok := signatureBytes(a.fields["signature"])
	switch {
	case !there || a.fields["signature"] == nil:
		return refuseAsVLLM("bad_signature", "Missing SHM handle signature for cache key.")
	case !ok || !hmac.Equal(given, s.sign(key, h)):
		return wrong
	}
	return nil
}

// signatureBytes reads a signature: hexadecimal, or a list of integers.
func signatureBytes(v any) ([]byte, bool) {
	switch v := v.(type) {
	case string:
		b, err := hex.DecodeString(v)
		return b, err == nil
	case []any:
		out := make([]byte, len(v))
		for i, x := range v {
			n, ok := x.(int64)
			if !ok || n < 0 || n > math.MaxUint8 {
				return nil, false
			}
			out[i] = byte(n)
		}
		return out, true
	}
	return nil, false
}
