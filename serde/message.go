package serde

import (
	"github.com/ringcache/ringcache/internal/codec"
	"github.com/ringcache/ringcache/pycompat"
)

// AppendItem appends an item to a message that is being written, which may contain
// anything else: the item's document goes to the end of frames[0], and the bytes of
// its long tensors become frames behind those that are there. All tensors must have
// their Data. The error wraps [fs.ErrInvalid].
func AppendItem(frames [][]byte, it *Item, o Options) ([][]byte, error) {
	g, err := pycompat.Resolve(o.Generation)
	if err != nil {
		return nil, err
	}
	if len(frames) == 0 {
		return nil, codec.Invalid("item", "there is no frame to append to")
	}
	e := &encoder{Encoder: codec.Append(frames, codec.Threshold(o.InlineThreshold)), gen: g, whole: true}
	e.item(it)
	return e.Frames()
}

// ReadItem reads the item that begins at a position of frames[0], in the middle of a
// message, and returns the position behind it. The item is a view of the frames. A
// frame that a tensor takes becomes nil in frames, since no two tensors share one;
// an empty frame that was not taken must not be nil. The error wraps [ErrCorrupt] or
// [ErrUnsupported].
func ReadItem(frames [][]byte, at int, o Options) (it *Item, end int, err error) {
	g, err := pycompat.Resolve(o.Generation)
	if err != nil {
		return nil, 0, err
	}
	return codec.DecodePart(frames, at,
		func(d *codec.Decoder) (*Item, error) { return (&decoder{d, g, newMemory()}).item() })
}
