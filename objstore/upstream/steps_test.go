package upstream_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/objstore/upstream"
	"github.com/ringcache/ringcache/serde"
)

// The scenarios of upstream's tests/distributed/test_shm_storage.py: a ring of
// 102400 bytes, objects of at most 10240, two readers, and a writer that was
// given a lock, so that it counts its own reads.

func upstreamStore(t *testing.T) *store {
	t.Helper()
	return newCountingStore(t, objstore.Options{RingSize: 102400, MaxObjectSize: 10240, Readers: 2}, newLock())
}

// get reads once and counts.
func (s *store) get(t *testing.T, h serde.Address, key string) serde.Value {
	t.Helper()
	v, err := s.Get(h)
	require.NoError(t, err)
	c, err := v.Clone()
	require.NoError(t, err)
	require.NoError(t, v.Release())
	return c
}

func text(s string) serde.Pickle { return pickled([]byte(s)) }

func TestUpstreamMinimalPutGetCycle(t *testing.T) {
	s := upstreamStore(t)
	field := serde.Field{Kind: serde.Shared, BatchSize: 1}
	it := &serde.Item{Elems: []serde.Elem{
		{Key: "field1", Data: &serde.Tensor{DType: "int8", Shape: []int{10}, Data: []byte("0123456789")}, Field: field},
		{Key: "field2", Data: &serde.Tensor{DType: "int8", Shape: []int{20}, Data: []byte("01234567890123456789")}, Field: field},
	}}
	h, err := s.Put("k", it)
	require.NoError(t, err)
	require.True(t, s.Cached("k"))
	require.Equal(t, it, s.get(t, h, "k"))
}

func TestUpstreamPutSameKeyTwice(t *testing.T) {
	s := upstreamStore(t)
	_, err := s.Put("k", text("value1"))
	require.NoError(t, err)
	_, err = s.Put("k", text("value2"))
	require.ErrorIs(t, err, objstore.ErrKeyExists)
	require.Contains(t, upstream.Text(err), "already exists in the storage")
}

func TestUpstreamLargeObjectRejection(t *testing.T) {
	s := upstreamStore(t)
	_, err := s.Put("k", text(strings.Repeat("x", 10240+100)))
	require.ErrorIs(t, err, objstore.ErrTooLarge)
	require.Contains(t, upstream.Text(err), "exceeds max object size")
	require.False(t, s.Cached("k"))
}

func TestUpstreamBufferOverflowAndCleanup(t *testing.T) {
	s := upstreamStore(t)
	type put struct {
		key   string
		value serde.Pickle
		h     serde.Address
	}
	var puts []put
	for i := 0; ; i++ {
		p := put{key: fmt.Sprintf("key_%d", i), value: text(strings.Repeat(fmt.Sprintf("data_%d", i), 100))}
		var err error
		if p.h, err = s.Put(p.key, p.value); err != nil {
			var full *objstore.HeadError
			require.ErrorAs(t, err, &full)
			require.Equal(t, objstore.HeadError{Need: full.Need, Used: full.Used, Size: full.Size, Key: "key_0", Uses: 1, Readers: 2}, *full)
			break
		}
		puts = append(puts, p)
	}
	require.Greater(t, len(puts), 100)
	for range 2 {
		for _, p := range puts {
			require.Equal(t, p.value, s.get(t, p.h, p.key))
		}
	}
	for i := range 10 {
		_, err := s.Put(fmt.Sprintf("more_%d", i), text("more"))
		require.NoError(t, err)
	}
}

func TestUpstreamBlockingUnreadObject(t *testing.T) {
	s := upstreamStore(t)
	var handles []serde.Address
	var err error
	for i := 0; ; i++ {
		var h serde.Address
		if h, err = s.Put(fmt.Sprint(i), text(strings.Repeat("x", 1000))); err != nil {
			break
		}
		handles = append(handles, h)
	}
	require.ErrorIs(t, err, objstore.ErrFull)
	for range 2 {
		for i, h := range handles[1:] {
			s.get(t, h, fmt.Sprint(i+1))
		}
	}
	_, err = s.Put("blocked", text(strings.Repeat("x", 1000)))
	require.ErrorIs(t, err, objstore.ErrFull, "object 0 was not read and is in the way")
	for range 2 {
		s.get(t, handles[0], "0")
	}
	for i := range 10 {
		_, err = s.Put(fmt.Sprintf("fits_%d", i), text(strings.Repeat("x", 1000)))
		require.NoError(t, err)
	}
}

func TestUpstreamInvalidGetOperations(t *testing.T) {
	s := newStore(t, objstore.Options{RingSize: 102400, MaxObjectSize: 10240, Readers: 2}) // a writer without a lock does not verify
	_, err := s.Get(serde.Address{Address: 99999, ID: 1})
	require.ErrorIs(t, err, objstore.ErrStale)
	h, err := s.Put("k", text("v"))
	require.NoError(t, err)
	h.ID += 100
	_, err = s.Get(h)
	require.ErrorIs(t, err, objstore.ErrStale)
	require.Contains(t, upstream.Text(err), "has been modified or is invalid")
}

func TestUpstreamClearStorage(t *testing.T) {
	for version, next := range map[string]uint32{"0.31.0": 0, "0.32.0": 5, "0.33.0": 5} {
		for _, keep := range []bool{false, true} {
			s := newStore(t, objstore.Options{RingSize: 102400, MaxObjectSize: 10240, Readers: 2, Generation: generation(t, version), KeepIDs: keep})
			for i := range 5 {
				_, err := s.Put(fmt.Sprint(i), text("v"))
				require.NoError(t, err)
			}
			require.NoError(t, s.Clear())
			st, err := s.State()
			require.NoError(t, err)
			require.Empty(t, st.Objects)
			h, err := s.Put("k", text("v"))
			require.NoError(t, err)
			if keep {
				next = 5
			}
			require.Equal(t, [2]uint64{0, uint64(next)}, [2]uint64{h.Address, uint64(h.ID)}, version)
		}
	}
}

func TestUpstreamReaderNeedsSignature(t *testing.T) {
	s := upstreamStore(t)
	good, err := s.Put("k", text("v"))
	require.NoError(t, err)
	for name, sig := range map[string]serde.Signature{"none": {}, "flipped": flip(good.Signature)} {
		h := good
		h.Signature = sig
		_, err := s.readers[0].Get("k", h)
		require.ErrorIs(t, err, objstore.ErrBadSignature, name)
		require.ErrorIs(t, s.readers[0].Touch(context.Background(), "k", h), objstore.ErrBadSignature, name)
		require.ErrorIs(t, s.TouchHandle(context.Background(), "k", h), objstore.ErrBadSignature, name)
	}
	for name, list := range map[string][]byte{"31 bytes": good.Signature[:31], "33 bytes": append(good.Signature[:], 0), "empty": {}} {
		require.ErrorIs(t, s.VerifyItem("k", withSignature(good, list)), objstore.ErrBadSignature, name)
	}
	require.NoError(t, s.VerifyItem("k", withSignature(good, good.Signature[:])))
	require.NoError(t, s.readers[0].Touch(context.Background(), "k", good))
	require.NoError(t, s.TouchHandle(context.Background(), "k", good))
	s.readAll(t, good, "k")
}

// TestItemWithoutSignatureHasVLLMsText: an address item that lacks what vLLM's receiver looks for is another failure
// than one whose signature is wrong.
func TestItemWithoutSignatureHasVLLMsText(t *testing.T) {
	s := upstreamStore(t)
	good, err := s.Put("k", text("v"))
	require.NoError(t, err)
	without := func(i int) *serde.Item {
		it := serde.NewAddressItem(good, "image")
		it.Elems = slices.Delete(it.Elems, i, i+1)
		return it
	}
	for name, c := range map[string]struct {
		item    *serde.Item
		missing bool
	}{
		"no signature": {without(2), true},
		"no id":        {without(1), true},
		"short":        {withSignature(good, good.Signature[:31]), false},
	} {
		err := s.VerifyItem("k", c.item)
		var bad *objstore.SignatureError
		require.ErrorAs(t, err, &bad, name)
		require.Equal(t, &objstore.SignatureError{Key: "k", Missing: c.missing}, bad, name)
		want := "Invalid SHM handle signature for cache key."
		if c.missing {
			want = "Missing SHM handle signature for cache key."
		}
		require.Equal(t, want, upstream.Text(err), name)
	}
}

func flip(s serde.Signature) serde.Signature {
	s[0] ^= 1
	return s
}

func TestUpstreamSignatureIsBoundToKeyAndAddress(t *testing.T) {
	s := upstreamStore(t)
	good, err := s.Put("k", text("v"))
	require.NoError(t, err)
	_, err = s.readers[0].Get("other", good)
	require.ErrorIs(t, err, objstore.ErrBadSignature)
	moved := good
	moved.Address++
	_, err = s.readers[0].Get("k", moved)
	require.ErrorIs(t, err, objstore.ErrBadSignature)
	later := good
	later.ID++
	_, err = s.readers[0].Get("k", later)
	require.ErrorIs(t, err, objstore.ErrBadSignature)
}

func TestUpstreamWriterRejectsHandleNotInIndex(t *testing.T) {
	s := upstreamStore(t)
	h, err := s.Put("k", text("v"))
	require.NoError(t, err)
	require.NoError(t, s.Verify("k", h))
	require.NoError(t, s.VerifyItem("k", serde.NewAddressItem(h, "image")))
	require.NoError(t, s.VerifyItem("anything", image(3, 1)), "not an address")
	require.NoError(t, s.Clear())
	require.ErrorIs(t, s.Verify("k", h), objstore.ErrBadSignature)
	require.ErrorIs(t, s.VerifyItem("k", serde.NewAddressItem(h, "image")), objstore.ErrBadSignature)
	require.ErrorIs(t, s.VerifyItem("k", serde.NewAddressItem(serde.Address{Address: h.Address, ID: h.ID}, "image")), objstore.ErrBadSignature, "no signature")
}

func TestUpstreamHandleFromBeforeClearReadsUntilReused(t *testing.T) {
	s := upstreamStore(t)
	old, err := s.Put("k", text("before"))
	require.NoError(t, err)
	require.NoError(t, s.Clear())
	r := s.readers[0]
	require.NoError(t, r.Touch(context.Background(), "k", old))
	v, err := r.Get("k", old)
	require.NoError(t, err)
	require.Equal(t, text("before"), v.Value())
	require.NoError(t, v.Check())

	_, err = s.Put("new", text("after"))
	require.NoError(t, err)
	require.ErrorIs(t, v.Check(), objstore.ErrStale)
	require.ErrorIs(t, v.Release(), objstore.ErrStale, "its count would land on the new object")
	for _, err := range []error{r.Touch(context.Background(), "k", old), func() error { _, err := r.Get("k", old); return err }()} {
		require.ErrorIs(t, err, objstore.ErrStale)
		require.Contains(t, upstream.Text(err), "has been modified or is invalid")
	}
}

// TestUpstreamMultiprocessExample: what upstream's example does with three
// reader processes is done with real ones by the interop suite; here three
// readers of one memory read every kind of value.
func TestUpstreamMultiprocessExample(t *testing.T) {
	s := newStore(t, objstore.Options{RingSize: 102400, MaxObjectSize: 10240, Readers: 3})
	item := image(1000, 9)
	item.Modality = "" // not on the wire any more
	values := map[string]serde.Value{"pickle": text("a"), "tensor": tensor(300, 7), "item": item}
	for key, value := range values {
		h, err := s.Put(key, value)
		require.NoError(t, err)
		for _, r := range s.readers {
			v, err := r.Get(key, h)
			require.NoError(t, err)
			c, err := v.Clone()
			require.NoError(t, err)
			require.Equal(t, value, c)
			require.NoError(t, v.Release())
		}
	}
	freed, err := s.FreeUnused()
	require.NoError(t, err)
	require.Len(t, freed, 3)
}

// vLLM's writer never verifies in get, with a lock or without; it compares the id
// that is in the ring. So it reads an older object of a key whose place was not used
// again, and counts the read if it has a lock. Its touch does verify, and needs the
// current one (shm_object_storage.py, 0.32.0 and 0.33.0: get, verify_signature).
func TestUpstreamWriterReadsWhateverIsInTheRing(t *testing.T) {
	s := upstreamStore(t)
	old, err := s.Put("k", text("old"))
	require.NoError(t, err)
	require.True(t, s.Remove("k"))
	current, err := s.Put("k", text("new"))
	require.NoError(t, err)
	forged := old
	forged.Signature = serde.Signature{1}
	for name, h := range map[string]serde.Address{"signed": old, "forged": forged, "bare": {Address: old.Address, ID: old.ID}} {
		for range 3 {
			v, err := s.Get(h)
			require.NoError(t, err, name)
			require.Equal(t, text("old"), v.Value())
			require.NoError(t, v.Release())
		}
		require.ErrorIs(t, s.TouchHandle(context.Background(), "k", h), objstore.ErrBadSignature)
	}
	require.NoError(t, s.TouchHandle(context.Background(), "k", current))
	st, err := s.State()
	require.NoError(t, err)
	require.Equal(t, int64(9), st.Objects[0].Reads, "with a lock each get counts")
	_, err = s.readers[0].Get("k", forged)
	require.ErrorIs(t, err, objstore.ErrBadSignature)
	for range 2 {
		s.readAll(t, current, "k")
	}
	_, err = s.Get(serde.Address{Address: current.Address, ID: old.ID, Signature: old.Signature})
	require.ErrorIs(t, err, objstore.ErrStale)
}
