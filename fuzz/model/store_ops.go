package model

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"strconv"
)

func (m *Store) put(s *store, a *args) (map[string]any, error) {
	key, ok := a.fields["key"].(string)
	metadata, data, shown, err := serialize(a.fields["value"], s.threshold)
	if err != nil || !ok {
		return nil, invalid("put needs a key and a value: %v", err)
	}
	if _, ok := s.handles[key]; ok {
		return nil, refuseAsVLLM("exists", "Key '%s' already exists in the storage.", key)
	}
	need := 4 + len(metadata) + len(data) // 4 for the count of reads
	if int64(need) > s.maxObject {
		return nil, refuseAsVLLM("too_large", "Serialized object size (%d bytes) exceeds max object size (%d bytes)",
			need, s.maxObject)
	}
	address, id, err := s.ring.Alloc(need)
	if err != nil {
		if _, err := s.free(m.release); err != nil {
			return nil, err
		}
		if address, id, err = s.ring.Alloc(need); err != nil {
			return nil, refuseAsVLLM("full", noRoom)
		}
	}
	content := append(metadata, data...)
	p := Offset(address, len(s.ring.Memory)) + header
	copy(s.ring.Memory[p:], []byte{0, 0, 0, 0})
	if p+need > len(s.ring.Memory) {
		// 0.11.0 hands out more than the ring contains. What becomes of the object depends on the slices
		// that Python copies to: they end where the memory does.
		return nil, refuse("corrupt", "the chunk goes beyond the end of the ring")
	}
	copy(s.ring.Memory[p+4:], content)
	s.values[string(content)] = shown
	s.uses[id]++
	s.handles[key], s.keys[id] = handle{address, id}, key
	return m.handle(s, key), nil
}

// handle is what put and lookup return.
func (m *Store) handle(s *store, key string) map[string]any {
	h := s.handles[key]
	out := map[string]any{"address": int64(h.address), "id": h.id}
	if m.release.Signed {
		out["signature"] = hex.EncodeToString(s.sign(key, h))
	}
	return out
}

func (m *Store) freeUnused(s *store, _ *args) (map[string]any, error) {
	freed, err := s.free(m.release)
	return map[string]any{"freed": append([]uint32{}, freed...)}, err
}

// free frees up to twice the size of the largest object.
func (s *store) free(r Release) ([]uint32, error) {
	freed, err := s.ring.free(func(id uint32, payload []byte) (bool, error) {
		uses, ok := s.uses[id]
		if !ok { // 0.11.0's chunk that was never allocated
			return false, refuseAsVLLM("not_found", "%d", id)
		}
		return !(r.Counting == 2 && s.touched[id]) && int64(signed(payload)) >= uses*s.readers, nil
	}, int(2*s.maxObject))
	for _, id := range freed {
		delete(s.handles, s.keys[id])
		delete(s.keys, id)
		delete(s.uses, id)
	}
	return freed, err
}

func (m *Store) cached(s *store, a *args) (map[string]any, error) {
	_, ok := s.handles[a.text("key")]
	return map[string]any{"cached": ok}, nil
}

func (m *Store) lookup(s *store, a *args) (map[string]any, error) {
	h, err := s.find(a)
	if err != nil {
		return nil, err
	}
	s.uses[h.id]++
	delete(s.touched, h.id)
	return m.handle(s, a.text("key")), nil
}

func (s *store) find(a *args) (handle, error) {
	key := a.text("key")
	h, ok := s.handles[key]
	if !ok {
		return h, refuseAsVLLM("not_found", "'%s'", key)
	}
	return h, nil
}

// touch by a store that counts is a reader's, and else the writer's. A reader that does not
// count is not vLLM's; its touch checks what theirs checks, and changes nothing.
func (m *Store) touch(s *store, a *args) (map[string]any, error) {
	if h, given, err := m.handleOf(a); err != nil || given && s.locked || !s.writes {
		if err == nil && !given {
			err = invalid("a reader's touch needs address and id")
		}
		if err != nil {
			return nil, err
		}
		return nil, m.touchHandle(s, a, h)
	}
	h, ok := s.handles[a.text("key")]
	switch {
	case !ok:
	case m.release.Counting == 1:
		s.uses[h.id]++
	case m.release.Counting == 2:
		s.touched[h.id] = true
	}
	return nil, nil
}

func (m *Store) touchHandle(s *store, a *args, h handle) error {
	if m.release.Counting == 0 {
		return nil
	}
	if m.release.Signed {
		if err := m.check(s, a, h); err != nil {
			return err
		}
	}
	id, _, payload := s.ring.read(h.address)
	if id != int(h.id) && (m.release.Counting == 2 || m.options.RefuseStaleTouch) {
		return stale(h)
	}
	if m.release.Counting == 1 && s.locked && int64(signed(payload)) >= s.readers {
		return s.count(payload)
	}
	return nil
}

func stale(h handle) error {
	return refuseAsVLLM("stale", "Data for address:id '%d:%d' has been modified or is invalid.", h.address, h.id)
}

// count adds 1 to the count of reads.
func (s *store) count(payload []byte) error {
	n := signed(payload) + 1
	if len(payload) < 4 || n > math.MaxInt32 {
		return refuse("corrupt", "the count of reads can't be written")
	}
	binary.LittleEndian.PutUint32(payload, uint32(n))
	return nil
}

func (m *Store) get(s *store, a *args) (map[string]any, error) {
	h, given, err := m.handleOf(a)
	if err != nil || !given {
		return nil, invalid("get needs address and id: %v", err)
	}
	if m.release.Signed && !s.writes {
		if err := m.check(s, a, h); err != nil {
			return nil, err
		}
	}
	id, _, payload := s.ring.read(h.address)
	if id != int(h.id) {
		return nil, stale(h)
	}
	value, ok := s.values[string(payload[min(4, len(payload)):])]
	if !ok {
		return nil, refuse("corrupt", "address:id '%d:%d' is not where an object was stored", h.address, h.id)
	}
	if s.locked {
		if err := s.count(payload); err != nil {
			return nil, err
		}
	}
	return map[string]any{"value": value}, nil
}

func (m *Store) releaseTouches(s *store, _ *args) (map[string]any, error) {
	clear(s.touched)
	return nil, nil
}

func (m *Store) clear(s *store, _ *args) (map[string]any, error) {
	s.ring.Clear()
	clear(s.handles)
	clear(s.keys)
	clear(s.uses)
	clear(s.touched)
	return nil, nil
}

// state has no used_bytes, leases and quarantined, which vLLM has no equal of.
func (m *Store) state(s *store, _ *args) (map[string]any, error) {
	index, uses, reads, touched := map[string]any{}, map[string]any{}, map[string]any{}, []uint32{}
	for key, h := range s.handles {
		index[key] = []any{int64(h.address), h.id}
	}
	for id, at := range s.ring.Live {
		_, _, payload := s.ring.read(at)
		reads[strconv.FormatUint(uint64(id), 10)] = int64(signed(payload))
	}
	for id, n := range s.uses {
		uses[strconv.FormatUint(uint64(id), 10)] = n
	}
	for id := s.ring.IDStart; id != s.ring.IDEnd; id = after(id) {
		if s.touched[id] {
			touched = append(touched, id)
		}
	}
	return map[string]any{
		"key_index": index, "writer_flag": uses, "reader_flag": reads, "touched": touched, "ring": state(s.ring),
	}, nil
}

// peek returns bytes of the segment: the secret, where there is one, and the ring.
func (m *Store) peek(s *store, a *args) (map[string]any, error) {
	bytes := s.ring.Memory
	if m.release.Signed {
		bytes = append(s.secret[:len(s.secret):len(s.secret)], bytes...)
	}
	offset, okOffset := a.integer("offset")
	length, okLength := a.integer("length")
	size := int64(len(bytes))
	if !okOffset || !okLength || offset < 0 || length < 0 || offset > size || length > size-offset {
		return nil, invalid("the segment has %d bytes", size)
	}
	return map[string]any{"hex": hex.EncodeToString(bytes[offset : offset+length])}, nil
}
