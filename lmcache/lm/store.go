package lm

import (
	"context"
	"encoding/binary"
	"io"

	"github.com/ringcache/ringcache/internal/values"
	"github.com/ringcache/ringcache/tier"
)

// Store is where a connection of a Server gets and puts values. One goroutine at a time uses it.
type Store interface {
	// Get calls use with a value, which is valid until use returns. Its error is that of use, or of tier.
	Get(ctx context.Context, k tier.Key, use func(o tier.Object, b []byte) error) error
	// Put stores a value, whose bytes are read from body, in place of another one under its key. It may
	// return before all of body was read.
	Put(ctx context.Context, o tier.Object, body io.Reader) error
	// Stat describes a value, of whatever level.
	Stat(ctx context.Context, k tier.Key) (tier.Object, error)
	// Close ends the use. Nothing stays pinned.
	Close()
}

// Over returns the Store of a connection over a store of levels: values are read from memory, where they are pinned
// meanwhile, and received straight into it. A value that only lower levels have is fetched first.
func Over(s *tier.Store) Store {
	return values.NewLeased(s, "lm", 0)
}

// noteSize is the size of the note of a typed value: LMCache's RemoteMetadata of one group of tensors.
const noteSize = 28

// objectOf returns the object of a Put.
func (f Form) objectOf(q *Request) (tier.Object, error) {
	k, err := f.KeyOf(q.Key)
	o := tier.Object{Key: k, Size: int64(q.Length)}
	if f != Untyped {
		o.Note = appendWords(make([]byte, 0, noteSize), q.Length, q.Meta.Format, q.Meta.DType)
		o.Note = appendWords(o.Note, q.Meta.Shape[:]...)
	}
	return o, err
}

// replyOf returns the header of the reply to a Get that has found an object. It is a miss if a Put did not write the
// note.
func (f Form) replyOf(o tier.Object) (p Reply, ok bool) {
	p = Reply{Code: Success, Length: int32(o.Size)}
	if int64(p.Length) != o.Size {
		return p, false
	}
	if f == Untyped {
		return p, len(o.Note) == 0
	}
	if len(o.Note) != noteSize || binary.LittleEndian.Uint32(o.Note) != uint32(p.Length) {
		return p, false
	}
	p.Meta.Format, p.Meta.DType = word(o.Note, 4), word(o.Note, 8)
	for i := range p.Meta.Shape {
		p.Meta.Shape[i] = word(o.Note, 12+4*i)
	}
	return p, p.Meta.check() == nil
}
