package encoder

import (
	"context"
	"fmt"
	"io/fs"

	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/tier"
)

// Save puts a tensor into a level. The caller sets Key of the object, and Parent, Tenant and Cost if it
// wants; Save sets Size and Note. What is there already stays, which is a success. t must not change before
// Save returns. Errors are those of [tier.Level.Put], and fs.ErrInvalid for data that are not of the tensor's
// dtype and shape.
func Save(ctx context.Context, l tier.Level, o tier.Object, t *serde.Tensor) error {
	note := Note{DType: t.DType, Shape: t.Shape}
	size, err := note.Size()
	if err != nil {
		return fmt.Errorf("encoder: saving %v: %w", o.Key, err)
	}
	if size != int64(len(t.Data)) {
		return fmt.Errorf("encoder: saving %v: %v takes %d bytes, the data have %d: %w",
			o.Key, note, size, len(t.Data), fs.ErrInvalid)
	}
	o.Size, o.Note = size, []byte(note.String())
	put := []tier.Put{{Object: o, Bytes: t.Data}}
	l.Put(ctx, put)
	return put[0].Err
}

// Load gets a tensor from a level, into memory of its own. Errors are those of [tier.Level.Get], and
// fs.ErrInvalid for an object whose note is none of a tensor of its size.
func Load(ctx context.Context, l tier.Level, k tier.Key) (*serde.Tensor, error) {
	var note Note
	get := []tier.Get{{Key: k, Into: func(o tier.Object) (_ []byte, err error) {
		if note, err = noteOf(o); err != nil {
			return nil, err
		}
		return make([]byte, o.Size), nil
	}}}
	l.Get(ctx, get)
	if err := get[0].Err; err != nil {
		return nil, err
	}
	return &serde.Tensor{DType: note.DType, Shape: note.Shape, Data: get[0].Bytes}, nil
}

// noteOf returns the note of an object, if the object has the size that the note asks for.
func noteOf(o tier.Object) (Note, error) {
	n, err := ParseNote(o.Note)
	if err != nil {
		return Note{}, fmt.Errorf("encoder: object %v is no tensor: %w", o.Key, err)
	}
	if size, err := n.Size(); err != nil || size != o.Size {
		return Note{}, fmt.Errorf("encoder: object %v has %d bytes, and %v takes %d: %w",
			o.Key, o.Size, n, size, fs.ErrInvalid)
	}
	return n, nil
}
