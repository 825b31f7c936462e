package agent

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/ringcache/ringcache/internal/fault"
	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/shmring"
)

// store is a writer or a reader. It stays under its name after it was closed,
// so that later operations say so.
type store struct {
	w    *objstore.Writer
	r    *objstore.Reader
	lock *pycompat.Semaphore // of a reader, or of a writer that counts
	open map[string]*objstore.Reservation

	closed bool
}

func (s *store) segment() *shmring.Segment {
	if s.w != nil {
		return s.w.Segment()
	}
	return s.r.Segment()
}

func (s *store) close() error {
	var errs []error
	for _, r := range s.open {
		r.Discard()
	}
	clear(s.open)
	if s.w != nil {
		errs = append(errs, s.w.Close())
	} else {
		errs = append(errs, s.r.Close())
	}
	errs = append(errs, s.closeLock())
	err := errors.Join(errs...)
	s.closed = err == nil
	return err
}

func (a *Agent) storeOps() map[string]operation {
	writer := func(f func(*params, *store) (reply, error)) operation {
		return a.onStore(func(p *params, s *store) (reply, error) {
			if s.w == nil {
				return nil, unsupportedf("%s is for the writer; this store was opened for reading", p.str("op"))
			}
			return f(p, s)
		})
	}
	return map[string]operation{
		"store.create":          a.storeCreate,
		"store.open":            a.storeOpen,
		"store.put":             writer(storePut),
		"store.cached":          writer(storeCached),
		"store.lookup":          writer(storeLookup),
		"store.signature":       writer(storeSignature),
		"store.verify":          a.onStore(storeVerify),
		"store.get":             a.onStore(storeGet),
		"store.touch":           a.onStore(storeTouch),
		"store.release_touches": writer(func(_ *params, s *store) (reply, error) { s.w.ReleaseTouches(); return nil, nil }),
		"store.free_unused":     writer(storeFreeUnused),
		"store.clear":           writer(func(_ *params, s *store) (reply, error) { return nil, s.w.Clear() }),
		"store.close":           a.onClosable(func(_ *params, s *store) (reply, error) { return nil, s.close() }),
		"store.unlink":          a.onClosable(storeUnlink),
		"store.reserve":         writer(storeReserve),
		"store.fill":            writer(storeFill),
		"store.publish":         writer(storePublish),
		"store.discard":         writer(storeDiscard),
		"store.state":           writer(storeState),
		"store.peek":            a.onStore(storePeek),
	}
}

// onStore is for operations on a store that was not closed.
func (a *Agent) onStore(f func(*params, *store) (reply, error)) operation {
	return a.onClosable(func(p *params, s *store) (reply, error) {
		if s.closed {
			return nil, fmt.Errorf("%w: store %q", objstore.ErrClosed, p.str("store"))
		}
		return f(p, s)
	})
}

func (a *Agent) onClosable(f func(*params, *store) (reply, error)) operation {
	return func(p *params) (reply, error) {
		name := p.str("store")
		s, ok := a.stores[name]
		if p.err == nil && !ok {
			p.fail("no store %q", name)
		}
		if p.err != nil {
			return nil, p.err
		}
		return f(p, s)
	}
}

func (a *Agent) addStore(p *params, make func() (*store, error)) error {
	name := p.str("store")
	if p.err != nil {
		return p.err
	}
	if old, ok := a.stores[name]; ok && !old.closed {
		return invalidf("store %q exists", name)
	}
	s, err := make()
	if err != nil {
		return err
	}
	s.open = map[string]*objstore.Reservation{}
	a.stores[name] = s
	return nil
}

func (a *Agent) storeCreate(p *params) (reply, error) {
	o := objstore.Options{
		Name: optional(p, "name", ""), RingSize: p.int("size"), MaxObjectSize: p.int("max_object"), Readers: p.int("readers"),
		Generation: p.generation(), Align: optional(p, "align", 0), InlineThreshold: optional(p, "threshold", 0), Dir: a.dir,
	}
	policy := optional(p, "policy", "fifo")
	var secret []byte
	if p.has("secret") {
		if secret = p.hex("secret"); p.err == nil && len(secret) != 32 {
			p.fail("field \"secret\": %d bytes, want 32", len(secret))
		}
	}
	var s store
	err := a.addStore(p, func() (*store, error) {
		if policy != "fifo" {
			return nil, unsupportedf("policy %q, want fifo", policy)
		}
		if err := a.sizeAllowed(o.RingSize); err != nil {
			return nil, err
		}
		if o.Name == "" {
			o.Name = uniqueName()
		}
		if err := s.writerLock(p, &o); err != nil {
			return nil, err
		}
		var err error
		if s.w, err = objstore.Create(o); err != nil {
			return nil, errors.Join(err, s.closeLock())
		}
		copy(s.segment().Secret(), secret)
		return &s, nil
	})
	if err != nil {
		return nil, err
	}
	return reply{"name": s.segment().Name(), "segment_bytes": s.segment().Size()}, nil
}

// uniqueName keeps stores apart, also when the environment names a segment.
func uniqueName() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return "ringcache_agent_" + hex.EncodeToString(b[:])
}

// writerLock makes the writer count its own reads: lock true under a lock of
// its own, a string under the Python semaphore of that name.
func (s *store) writerLock(p *params, o *objstore.Options) error {
	if !p.has("lock") {
		return nil
	}
	var name string
	if p.fields["lock"][0] == '"' {
		name = p.str("lock")
	} else if !required[bool](p, "lock") {
		return p.err
	}
	if p.err != nil {
		return p.err
	}
	if name == "" {
		o.Lock = make(ownLock, 1)
		return nil
	}
	return s.openLock(name, func(l objstore.Locker) { o.Lock = l })
}

func (s *store) openLock(name string, use func(objstore.Locker)) error {
	l, err := pycompat.OpenSemaphore(name)
	if err != nil {
		return err
	}
	s.lock = l
	use(l)
	return nil
}

func (s *store) closeLock() error {
	if s.lock == nil {
		return nil
	}
	return s.lock.Close()
}

// ownLock is a lock that no other process takes.
type ownLock chan struct{}

func (l ownLock) Lock(context.Context) error { l <- struct{}{}; return nil }
func (l ownLock) Unlock() error              { <-l; return nil }

func (a *Agent) storeOpen(p *params) (reply, error) {
	name := p.str("name")
	o := objstore.ReaderOptions{RingSize: p.int("size"), Readers: p.int("readers"), Generation: p.generation(), Dir: a.dir}
	_ = optional(p, "max_object", 0) // a reader has no use for it, but a wrong type is an error
	lock := optional(p, "lock", "")
	return nil, a.addStore(p, func() (*store, error) {
		var s store
		if p.has("lock") {
			if err := s.openLock(lock, func(l objstore.Locker) { o.Lock = l }); err != nil {
				return nil, err
			}
		}
		var err error
		if s.r, err = objstore.Open(name, o); err != nil {
			return nil, errors.Join(err, s.closeLock())
		}
		return &s, nil
	})
}

func handleReply(h objstore.Handle) reply {
	out := reply{"address": h.Address, "id": h.ID}
	if h.Signature != nil {
		out["signature"] = hex.EncodeToString(h.Signature)
	}
	return out
}

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
	key, v := p.str("key"), p.value("value", false)
	if p.err != nil {
		return nil, p.err
	}
	h, err := s.w.Put(key, v)
	if err != nil {
		return nil, err
	}
	return handleReply(h), nil
}

func storeCached(p *params, s *store) (reply, error) {
	key := p.str("key")
	if p.err != nil {
		return nil, p.err
	}
	return reply{"cached": s.w.Cached(key)}, nil
}

func storeLookup(p *params, s *store) (reply, error) {
	key := p.str("key")
	if p.err != nil {
		return nil, p.err
	}
	h, err := s.w.Lookup(key)
	if err != nil {
		return nil, err
	}
	return handleReply(h), nil
}

func storeSignature(p *params, s *store) (reply, error) {
	key := p.str("key")
	if p.err != nil {
		return nil, p.err
	}
	sig, err := s.w.Signature(key)
	if err != nil {
		return nil, err
	}
	if sig == nil {
		return nil, unsupportedf("vLLM %s has no signatures", s.w.Generation().Version)
	}
	return reply{"signature": hex.EncodeToString(sig)}, nil
}

func storeVerify(p *params, s *store) (reply, error) {
	key, h := p.str("key"), p.handle()
	if p.err != nil {
		return nil, p.err
	}
	if s.w != nil {
		return nil, s.w.Verify(key, h)
	}
	return nil, s.r.Verify(key, h)
}

func storeGet(p *params, s *store) (reply, error) {
	h, key := p.handle(), optional(p, "key", "")
	if p.err != nil {
		return nil, p.err
	}
	if !p.has("key") {
		h.Signature = nil // as in Python, where a missing key is a missing signature
	}
	get := func() (*objstore.View, error) { return s.r.Get(h, key) }
	if s.w != nil {
		get = func() (*objstore.View, error) { return s.w.Get(h, key) }
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
	if err != nil {
		return nil, err
	}
	return encodeValue(c), nil
}

func storeTouch(p *params, s *store) (reply, error) {
	key := p.str("key")
	var h objstore.Handle
	if s.r != nil || p.has("address") {
		h = p.handle()
	}
	if p.err != nil {
		return nil, p.err
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
	if err != nil {
		return nil, err
	}
	return reply{"freed": append([]uint32{}, freed...)}, nil
}

func storeReserve(p *params, s *store) (reply, error) {
	key, v := p.str("key"), p.value("value", true)
	if p.err != nil {
		return nil, p.err
	}
	r, err := s.w.Reserve(key, v)
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
	if p.err == nil && !ok {
		p.fail("key %q is not reserved", key)
	}
	return r
}

func storeFill(p *params, s *store) (reply, error) {
	r := s.reservation(p)
	field, offset, b := p.str("field"), p.int("offset"), p.hex("hex")
	if p.err != nil {
		return nil, p.err
	}
	dst := r.Tensor(field)
	if dst == nil || offset < 0 || offset > len(dst) || len(b) > len(dst)-offset {
		return nil, invalidf("field %q has %d bytes to fill, not %d from %d on", field, len(dst), len(b), offset)
	}
	copy(dst[offset:], b)
	return nil, nil
}

func storePublish(p *params, s *store) (reply, error) {
	r := s.reservation(p)
	if p.err != nil {
		return nil, p.err
	}
	delete(s.open, p.str("key"))
	h, err := r.Commit()
	if err != nil {
		return nil, err
	}
	return handleReply(h), nil
}

func storeDiscard(p *params, s *store) (reply, error) {
	r := s.reservation(p)
	if p.err != nil {
		return nil, p.err
	}
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
		if o.Touched {
			touched = append(touched, o.ID)
		}
	}
	ring := ringState(st.Ring)
	ring["metadata"] = metadata
	return reply{
		"key_index": keys, "writer_flag": uses, "reader_flag": reads, "touched": touched,
		"used_bytes": st.Used, "ring": ring,
	}, nil
}

// maxPeek bounds one look at raw bytes.
const maxPeek = 64 << 20

func storePeek(p *params, s *store) (reply, error) {
	offset, length := p.int("offset"), p.int("length")
	if p.err != nil {
		return nil, p.err
	}
	if err := s.segment().Hold(); err != nil {
		return nil, err
	}
	defer s.segment().Release()
	b := s.segment().Bytes()
	if offset < 0 || length < 0 || length > maxPeek || offset > len(b) || length > len(b)-offset {
		return nil, invalidf("%d bytes from %d on: the segment has %d, and one look shows at most %d", length, offset, len(b), maxPeek)
	}
	var raw []byte
	err := fault.Guard(func() error { raw = bytes.Clone(b[offset : offset+length]); return nil })
	if err != nil {
		return nil, fmt.Errorf("%w: %w", objstore.ErrCorrupt, err)
	}
	return reply{"hex": hex.EncodeToString(raw)}, nil
}
