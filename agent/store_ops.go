package agent

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/ringcache/ringcache/internal/fault"
	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/serde"
)

func handleReply(h serde.Address) reply {
	out := reply{"address": h.Address, "id": h.ID}
	if !h.Signature.IsZero() {
		out["signature"] = hex.EncodeToString(h.Signature[:])
	}
	return out
}

func storeReleaseTouches(_ *params, s *store) (reply, error) { s.w.ReleaseTouches(); return nil, nil }

func storeClose(_ *params, s *store) (reply, error) { return nil, s.close() }

// storeUnlink removes the name early; closing a writer removes it anyway.
func storeUnlink(_ *params, s *store) (reply, error) {
	if s.w == nil {
		return nil, unsupportedf("only the writer may remove a segment")
	}
	if s.closed {
		return nil, nil
	}
	return nil, s.segment().Unlink()
}

func storePut(p *params, s *store) (reply, error) {
	key, v, r, o := p.str("key"), p.value("value", false), s.request(p, false), putOptions(p)
	put := s.w.Put
	if r != nil {
		put = r.Put
	}
	h, err := put(key, v, o)
	return handleReply(h), err
}

func storeCached(p *params, s *store) (reply, error) {
	return reply{"cached": s.w.Cached(p.str("key"))}, nil
}

func storeLookup(p *params, s *store) (reply, error) {
	key, r := p.str("key"), s.request(p, false)
	lookup := s.w.GetCached
	if r != nil {
		lookup = r.Lookup
	}
	h, err := lookup(key)
	if err != nil {
		return nil, err
	}
	s.w.Untouch(key) // as GetCached does
	return handleReply(h), nil
}

func storeSignature(p *params, s *store) (reply, error) {
	sig, err := s.w.Signature(p.str("key"))
	if err != nil {
		return nil, err
	}
	if sig.IsZero() {
		return nil, unsupportedf("vLLM %s has no signatures", s.generation.Version)
	}
	return reply{"signature": hex.EncodeToString(sig[:])}, nil
}

func storeVerify(p *params, s *store) (reply, error) {
	key, h := p.str("key"), p.handle()
	if s.w != nil {
		return nil, s.w.Verify(key, h)
	}
	return nil, s.r.Verify(key, h)
}

func storeGet(p *params, s *store) (reply, error) {
	h, key := p.handle(), optional(p, "key", "")
	if !p.has("key") {
		h.Signature = serde.Signature{} // as in Python, where a missing key is a missing signature
	}
	get := func() (*objstore.View, error) { return s.r.Get(key, h) }
	if s.w != nil {
		get = func() (*objstore.View, error) { return s.w.Get(h) }
	}
	v, err := get()
	if err != nil {
		return nil, err
	}
	value, err := describeView(v)
	if err := errors.Join(err, v.Release()); err != nil {
		return nil, err
	}
	return reply{"value": value}, nil
}

func describeView(v *objstore.View) (value reply, err error) {
	c, err := v.Clone()
	return encodeValue(c), err
}

func storeTouch(p *params, s *store) (reply, error) {
	key := p.str("key")
	var h serde.Address
	if s.r != nil || p.has("address") {
		h = p.handle()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	switch {
	case s.r != nil:
		return nil, s.r.Touch(ctx, key, h)
	case p.has("address"):
		return nil, s.w.TouchHandle(ctx, key, h)
	}
	return nil, s.w.Touch(key)
}

func storeFreeUnused(_ *params, s *store) (reply, error) {
	freed, err := s.w.FreeUnused()
	return reply{"freed": append([]uint32{}, freed...)}, err
}

func storeReserve(p *params, s *store) (reply, error) {
	key, v, owner, o := p.str("key"), p.value("value", true), s.request(p, false), putOptions(p)
	reserve := s.w.Reserve
	if owner != nil {
		reserve = owner.Reserve
	}
	r, err := reserve(key, v, o)
	if err != nil {
		return nil, err
	}
	s.open[key] = r
	address, id := r.Place()
	return reply{"address": address, "id": id}, nil
}

func (s *store) reservation(p *params) *objstore.Reservation {
	key := p.str("key")
	r, ok := s.open[key]
	if !ok {
		p.fail("key %q is not reserved", key)
	}
	return r
}

func storeFill(p *params, s *store) (reply, error) {
	r := s.reservation(p)
	field, offset, b := p.str("field"), p.int("offset"), p.hex("hex")
	dst := r.Tensor(field)
	if dst == nil || offset < 0 || offset > len(dst) || len(b) > len(dst)-offset {
		return nil, invalidf("field %q has %d bytes to fill, not %d from %d on", field, len(dst), len(b), offset)
	}
	copy(dst[offset:], b)
	return nil, nil
}

func storePublish(p *params, s *store) (reply, error) {
	r := s.reservation(p)
	h, err := r.Commit()
	if err != nil {
		return nil, err // the reservation is still there, to be discarded
	}
	delete(s.open, p.str("key"))
	return handleReply(h), nil
}

func storeDiscard(p *params, s *store) (reply, error) {
	r := s.reservation(p)
	delete(s.open, p.str("key"))
	r.Discard()
	return nil, nil
}

func storeState(_ *params, s *store) (reply, error) {
	st, err := s.w.State()
	if err != nil {
		return nil, err
	}
	keys, uses, reads := map[string][2]uint64{}, map[string]int64{}, map[string]int64{}
	metadata, touched := map[string]uint64{}, []uint32{}
	for _, o := range st.Objects {
		id := strconv.FormatUint(uint64(o.ID), 10)
		uses[id], reads[id], metadata[id] = o.Uses, o.Reads, o.Address
		if o.Indexed {
			keys[o.Key] = [2]uint64{o.Address, uint64(o.ID)}
		}
		if o.Pinned {
			touched = append(touched, o.ID)
		}
	}
	out := reply{
		"key_index": keys, "writer_flag": uses, "reader_flag": reads, "touched": touched,
		"leases": st.Leases, "quarantined": st.Quarantined, "used_bytes": st.Used,
	}
	if s.pool == nil {
		ring := ringState(st.Ring)
		ring["metadata"] = metadata
		out["ring"] = ring
	}
	return out, nil
}

// maxPeek bounds one look at raw bytes.
const maxPeek = 64 << 20

func storePeek(p *params, s *store) (reply, error) {
	offset, length := p.int("offset"), p.int("length")
	if err := s.segment().Hold(); err != nil {
		return nil, err
	}
	defer s.segment().Release()
	b := s.segment().Bytes()
	if offset < 0 || length < 0 || length > maxPeek || offset > len(b) || length > len(b)-offset {
		return nil, invalidf("%d bytes from %d on: the segment has %d, and one look shows at most %d",
			length, offset, len(b), maxPeek)
	}
	var raw []byte
	err := fault.Guard(func() error { raw = bytes.Clone(b[offset : offset+length]); return nil })
	if err != nil {
		return nil, fmt.Errorf("%w: %w", objstore.ErrCorrupt, err)
	}
	return reply{"hex": hex.EncodeToString(raw)}, nil
}
