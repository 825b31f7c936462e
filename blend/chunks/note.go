package chunks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"strconv"

	"github.com/ringcache/ringcache/blend"
	"github.com/ringcache/ringcache/tier"
)

// A Note is what an object says of its chunk.
type Note struct {
	blend.Shape
	Tokens      int
	Fingerprint uint64
	Position    int
	Unrotated   bool
	Segment     bool // stands between separators, and is named otherwise
}

// noteJSON is a Note in an object: {"blend":1, ...}. The fingerprint is a text, since JSON readers lose
// digits of numbers.
type noteJSON struct {
	Blend       int    `json:"blend"`
	Tokens      int    `json:"tokens"`
	Fingerprint string `json:"fingerprint"` // hexadecimal
	Position    int    `json:"position"`
	Unrotated   bool   `json:"unrotated,omitempty"`
	Segment     bool   `json:"segment,omitempty"`
	Layers      int    `json:"layers"`
	Heads       int    `json:"heads"`
	HeadDim     int    `json:"head_dim"`
	DType       string `json:"dtype"`
}

const (
	noteVersion = 1
	maxTokens   = 1 << 24 // as in package blend
)

func invalid(format string, args ...any) error {
	return fmt.Errorf("chunks: "+format+": %w", append(args, fs.ErrInvalid)...)
}

func (n Note) encode() ([]byte, error) {
	return json.Marshal(noteJSON{
		noteVersion, n.Tokens, strconv.FormatUint(n.Fingerprint, 16), n.Position, n.Unrotated, n.Segment,
		n.Layers, n.Heads, n.HeadDim, n.DType.String(),
	})
}

// ReadNote returns the note of an object, which is no chunk if there is an error.
func ReadNote(o tier.Object) (Note, error) {
	var j noteJSON
	d := json.NewDecoder(bytes.NewReader(o.Note))
	d.DisallowUnknownFields()
	if err := d.Decode(&j); err != nil || j.Blend != noteVersion {
		return Note{}, invalid("%s has no note of a chunk", o.Key)
	}
	f, err := strconv.ParseUint(j.Fingerprint, 16, 64)
	if err != nil {
		return Note{}, invalid("%s: no fingerprint: %v", o.Key, err)
	}
	shape := blend.Shape{Layers: j.Layers, Heads: j.Heads, HeadDim: j.HeadDim}
	if err := shape.DType.UnmarshalText([]byte(j.DType)); err != nil {
		return Note{}, err
	}
	n := Note{shape, j.Tokens, f, j.Position, j.Unrotated, j.Segment}
	if err := n.Validate(); err != nil {
		return Note{}, err
	}
	if n.Tokens < 1 || n.Position < 0 || n.Tokens > maxTokens || n.Position > maxTokens || n.Bytes(n.Tokens) != o.Size {
		return Note{}, invalid("%s has %d bytes and a note of %d tokens at position %d",
			o.Key, o.Size, n.Tokens, n.Position)
	}
	return n, nil
}
