package objstore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring/segment"
)

// look gets an object and copies it.
func look(t *testing.T, r *Reader, key string, h serde.Address) (serde.Value, error) {
	t.Helper()
	var v View
	if err := r.GetInto(&v, key, h); err != nil {
		return nil, err
	}
	c, err := v.Clone()
	require.NoError(t, err)
	require.NoError(t, v.Release())
	return c, nil
}

// over returns a segment over the memory of a store.
func over(t *testing.T, s *store) *segment.Segment {
	t.Helper()
	seg, err := segment.Private(s.mem, segment.Options{RingSize: len(s.mem) - secretSize, DataOffset: secretSize})
	require.NoError(t, err)
	return seg
}

// TestSameIDWithOtherBytes: a reader that has seen an object finds what is under its id now, if something else than
// the writer changed it, as a reader does that sees it for the first time.
func TestSameIDWithOtherBytes(t *testing.T) {
	s := newStore(t, Options{RingSize: 8000, MaxObjectSize: 8000, Readers: 1})
	r := s.readers[0]
	h, err := s.Put("a", qwen(2352*2))
	require.NoError(t, err)
	chunk := s.Segment().Ring()[h.Address:]
	chunk = chunk[:binary.LittleEndian.Uint32(chunk[4:])]
	before := bytes.Clone(chunk)
	want, err := look(t, r, "a", h)
	require.NoError(t, err)
	same := 0
	for at := 4; at < len(chunk); at++ {
		if at >= 8 && at < 12 {
			continue // the count
		}
		chunk[at] ^= 1
		fresh, err := Open("", ReaderOptions{Segment: over(t, s), RingSize: 8000, Readers: 1})
		require.NoError(t, err)
		wantValue, wantErr := look(t, fresh, "a", h)
		require.NoError(t, fresh.Close())
		got, gotErr := look(t, r, "a", h)
		require.Equal(t, wantErr == nil, gotErr == nil, "byte %d: %v, %v", at, wantErr, gotErr)
		if gotErr != nil {
			require.Equal(t, wantErr.Error(), gotErr.Error(), "byte %d", at)
		}
		require.Equal(t, wantValue, got, "byte %d", at)
		if got != nil {
			same++
		}
		copy(chunk, before[:8])
		copy(chunk[12:], before[12:])
	}
	require.Greater(t, same, 2352*2, "changed bytes of tensors are seen")
	got, err := look(t, r, "a", h)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// TestSeenSignatureOfAnotherSecret: what was verified holds for the secret it was verified under.
func TestSeenSignatureOfAnotherSecret(t *testing.T) {
	s := newStore(t, Options{RingSize: 8000, MaxObjectSize: 4000, Readers: 1})
	r := s.readers[0]
	h, err := s.Put("a", image(600, 1))
	require.NoError(t, err)
	for range 2 {
		_, err = look(t, r, "a", h)
		require.NoError(t, err)
	}
	for _, bad := range []struct {
		key    string
		change func(*serde.Address)
	}{
		{"b", func(*serde.Address) {}},
		{"a", func(h *serde.Address) { h.Signature = serde.Signature{} }},
		{"a", func(h *serde.Address) { h.Signature[31] ^= 1 }},
		{"a", func(h *serde.Address) { h.ID++ }},
		{"a", func(h *serde.Address) { h.Address++ }},
	} {
		h := h
		bad.change(&h)
		_, err := look(t, r, bad.key, h)
		require.ErrorIs(t, err, ErrBadSignature)
	}
	s.Segment().Secret()[3]++
	_, err = look(t, r, "a", h)
	require.ErrorIs(t, err, ErrBadSignature)
	s.Segment().Secret()[3]--
	_, err = look(t, r, "a", h)
	require.NoError(t, err)
}

// TestIDThatMeansAnotherObject: ids begin anew in generations before 0.32 when the store is cleared, so that a handle
// leads to other bytes.
func TestIDThatMeansAnotherObject(t *testing.T) {
	s := newStore(t, Options{RingSize: 8000, MaxObjectSize: 4000, Readers: 1, Generation: generation(t, "0.31.0")})
	for i, v := range []serde.Value{image(600, 1), image(600, 2), nested(), tensor(500, 3), image(600, 1)} {
		if it, ok := v.(*serde.Item); ok {
			it.Modality = ""
		}
		h, err := s.Put("a", v)
		require.NoError(t, err)
		require.Equal(t, serde.Address{}, h, "%d", i)
		for range 2 {
			got, err := look(t, s.readers[0], "a", h)
			require.NoError(t, err)
			require.Equal(t, v, got, "%d", i)
		}
		require.NoError(t, s.Clear())
	}
}

// TestMemoryOfAReaderIsBounded: large documents, and keys, are not remembered, and the number of places is fixed.
func TestMemoryOfAReaderIsBounded(t *testing.T) {
	s := newStore(t, Options{RingSize: 256 << 10, Readers: 1})
	r := s.readers[0]
	remembered := func() (sights, layouts int) {
		for i := range r.memory.sights {
			if r.memory.sights[i].Load() != nil {
				sights++
			}
		}
		for i := range r.memory.layouts {
			if r.memory.layouts[i].Load() != nil {
				layouts++
			}
		}
		return sights, layouts
	}
	numbers := make([]any, 2*maxDocument)
	for i := range numbers {
		numbers[i] = int64(i)
	}
	for key, v := range map[string]serde.Value{
		"large":                       &serde.Item{Elems: []serde.Elem{{Key: "x", Data: numbers}}},
		"pickle":                      pickled([]byte("x")),
		strings.Repeat("k", maxKey+1): image(600, 1),
	} {
		h, err := s.Put(key, v)
		require.NoError(t, err)
		for range 2 {
			_, err = look(t, r, key, h)
			require.NoError(t, err)
		}
	}
	sights, layouts := remembered()
	require.Equal(t, [2]int{0, 1}, [2]int{sights, layouts}, "the layout of the item with the long key alone")
	for i := range 2000 {
		key := fmt.Sprint(i)
		h, err := s.Put(key, image(i%1000, 1))
		require.NoError(t, err)
		s.readAll(t, h, key)
	}
	sights, layouts = remembered()
	require.Greater(t, sights, len(r.memory.sights)/2)
	require.Greater(t, layouts, len(r.memory.layouts)/2)
}

// TestObjectsOfOneShapeAreDecodedOnce: images of one model and size have the same documents.
func TestObjectsOfOneShapeAreDecodedOnce(t *testing.T) {
	s := newStore(t, Options{RingSize: 64 << 10, Readers: 1})
	r := s.readers[0]
	var layouts []*decoded
	for i := range 3 {
		key := fmt.Sprint(i)
		h, err := s.Put(key, image(600, byte(i)))
		require.NoError(t, err)
		got, err := look(t, r, key, h)
		require.NoError(t, err)
		require.Equal(t, bytes.Repeat([]byte{byte(i)}, 600), got.(*serde.Item).Elems[0].Data.(*serde.Tensor).Data)
		layouts = append(layouts, r.memory.sight(&h).layout)
	}
	require.Same(t, layouts[0], layouts[1])
	require.Same(t, layouts[0], layouts[2])
}
