package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/ringcache/ringcache/internal/remotemetadata"
	"github.com/ringcache/ringcache/kv"
	"github.com/ringcache/ringcache/kv/paged"
	"github.com/ringcache/ringcache/tier"
)

// A Request is the tokens of a prompt, from its first token on, and where their KV is, or will be.
type Request struct {
	Tokens []int64
	// Skip is how many tokens at the front are left out, a multiple of the chunk: LMCache's mask is False for them.
	Skip int
	// Slots are those of all tokens. Lookup needs none. A negative one is refused by Store and SaveLayers,
	// and by others skipped, as for tokens whose KV the engine has already.
	Slots []int64
	// Salt sets the chunks of one user apart from those of others (vLLM's cache_salt). With LMCache's keys,
	// which do not have it, it is refused.
	Salt string
	// Tags are options of the request that are part of LMCache's keys. Other keys do not have them, and refuse them.
	Tags []kv.Tag
}

// SkipOf returns Request.Skip for a mask of LMCache, which is False for some tokens at the front and True for
// the rest.
func SkipOf(mask []bool) (int, error) {
	skip := 0
	for skip < len(mask) && !mask[skip] {
		skip++
	}
	for i, wanted := range mask[skip:] {
		if !wanted {
			return 0, invalid(fmt.Errorf("the mask is False for token %d, behind one for which it is True", skip+i))
		}
	}
	return skip, nil
}

// A chunk is a part of a request.
type chunk struct {
	start, end int
	space      string
	name       string // of the object of all layers
	key        kv.EngineKey
	before     *chunk // the chunk in front, without which this one is worthless
}

// chunks cuts a request. It checks everything about it that does not depend on what is stored.
func (e *Engine) chunks(r Request, slots bool) ([]*chunk, error) {
	switch {
	case r.Skip < 0 || r.Skip > len(r.Tokens):
		return nil, invalid(fmt.Errorf("%d of %d tokens are left out", r.Skip, len(r.Tokens)))
	case slots && len(r.Slots) != len(r.Tokens):
		return nil, invalid(fmt.Errorf("%d slots for %d tokens", len(r.Slots), len(r.Tokens)))
	}
	if slots {
		if err := e.o.Buffers.Check(r.Slots); err != nil {
			return nil, err
		}
	}
	if e.o.Database == nil {
		return e.ownChunks(r)
	}
	if r.Salt != "" {
		return nil, invalid(errors.New("LMCache's keys have no salt"))
	}
	found, err := e.o.Database.Chunks(r.Tokens, r.Skip, r.Tags)
	if err != nil {
		return nil, err
	}
	out := make([]*chunk, 0, len(found))
	for _, f := range found {
		if f.Start == f.End {
			continue // an empty segment
		}
		if _, err := lmcacheNote(e.o, f.End-f.Start, e.o.Layered); err != nil { // segments have any length
			return nil, invalid(fmt.Errorf("the tokens %d to %d: %w", f.Start, f.End, err))
		}
		text, err := f.Key.AppendText(nil)
		if err != nil {
			return nil, err
		}
		c := &chunk{start: f.Start, end: f.End, space: e.o.Space, name: string(text), key: f.Key}
		// Segments have a separator between them, and need no others.
		if n := len(out); n > 0 && out[n-1].end == f.Start {
			c.before = out[n-1]
		}
		out = append(out, c)
	}
	return out, nil
}

// ownChunks cuts a request as `ringcache serve` does for LMCache's workers.
func (e *Engine) ownChunks(r Request) ([]*chunk, error) {
	size := e.o.Layout.ChunkTokens
	if r.Skip%size != 0 {
		return nil, invalid(fmt.Errorf(
			"the first %d tokens are left out; it must be a multiple of the chunk of %d tokens",
			r.Skip, size))
	}
	if len(r.Tags) > 0 {
		return nil, invalid(errors.New("only LMCache's keys have tags"))
	}
	space, err := e.o.Layout.Space(e.o.Worker, 0, r.Salt)
	if err != nil {
		return nil, err
	}
	if e.o.Layered {
		space += "." + e.o.LayerFormat.String()
	}
	chain := e.hasher.NewChain()
	if err := chain.SetTokens(r.Tokens); err != nil {
		return nil, err
	}
	var out []*chunk
	var before *chunk
	for i := range chain.Len() {
		c := &chunk{
			start: i * size, end: (i + 1) * size, space: space,
			name: e.hasher.Text(chain.Hash(i)), before: before,
		}
		if before = c; c.start >= r.Skip {
			out = append(out, c)
		}
	}
	return out, nil
}

// tokens returns the number of tokens of a chunk.
func (c *chunk) tokens() int { return c.end - c.start }

// whole stands for all layers in the place of the number of one.
const whole = -1

// parts returns the layers of which each is an object: one, which is whole, if the engine is not layered.
func (e *Engine) parts() []int {
	if !e.o.Layered {
		return []int{whole}
	}
	all := make([]int, e.o.Layout.Groups[0].Layers)
	for i := range all {
		all[i] = i
	}
	return all
}

// keyOf returns the key of the object of a layer.
func (e *Engine) keyOf(c *chunk, layer int) tier.Key {
	name := c.name
	switch {
	case layer == whole:
	case e.o.Database == nil:
		name += "@" + strconv.Itoa(layer)
	default:
		key := c.key
		key.Layered, key.Layer = true, layer
		text, err := key.AppendText(nil)
		if err != nil { // the key without a layer had a text
			panic(err)
		}
		name = string(text)
	}
	return tier.Key{Space: c.space, Name: name}
}

func (e *Engine) keysOf(chunks []*chunk, layer int) []tier.Key {
	keys := make([]tier.Key, len(chunks))
	for i, c := range chunks {
		keys[i] = e.keyOf(c, layer)
	}
	return keys
}

// objectOf describes the object of a layer to a store.
func (e *Engine) objectOf(c *chunk, layer int) tier.Object {
	o := tier.Object{
		Key: e.keyOf(c, layer), Size: e.sizeOf(c, layer), Tenant: e.o.Tenant, Note: e.noteOf(c, layer),
		Cost: e.o.Layout.Cost(0, c.start/e.o.Layout.ChunkTokens),
	}
	if layer != whole {
		o.Cost /= time.Duration(e.o.Layout.Groups[0].Layers)
	}
	if c.before != nil {
		o.Parent = e.keyOf(c.before, layer).Name
	}
	return o
}

func (e *Engine) sizeOf(c *chunk, layer int) int64 {
	return int64(e.o.Buffers.Geometry().ChunkBytes(c.tokens(), layer != whole))
}

// noteSize is the size of the note of an object with a key of ours: when it was stored, in milliseconds since 1970.
const noteSize = 8

func (e *Engine) noteOf(c *chunk, layer int) []byte {
	if e.o.Database == nil {
		return binary.LittleEndian.AppendUint64(nil, uint64(e.o.Now().UnixMilli()))
	}
	note, err := lmcacheNote(e.o, c.tokens(), layer != whole)
	if err != nil { // chunks made one already
		panic(err)
	}
	return note
}

// lmcacheNote returns LMCache's description of a chunk. Of whole chunks with one plane it has a dimension for
// the plane, too.
func lmcacheNote(o Options, tokens int, layered bool) ([]byte, error) {
	g := o.Layout.Groups[0]
	var f paged.Format
	var shape []int
	switch {
	case !layered:
		f, shape = o.Buffers.Geometry().Layout.Whole(), []int{g.Planes, g.Layers, tokens, g.Hidden}
	case o.LayerFormat == paged.KVT2D:
		f, shape = o.LayerFormat, []int{tokens, g.Planes, g.Hidden}
	case o.LayerFormat == paged.KV2TD:
		f, shape = o.LayerFormat, []int{g.Planes, tokens, g.Hidden}
	default:
		f, shape = o.LayerFormat, []int{tokens, g.Hidden}
	}
	return remotemetadata.AppendOne(nil, int(f), g.DType, shape...)
}

// fits reports whether an object is a hit: it has the size, and dtype and shape if LMCache's key does not
// settle them, and it has not expired. Model, tokens and, in our keys, everything else are part of the key.
func (e *Engine) fits(o tier.Object, c *chunk, layer int) bool {
	if o.Size != e.sizeOf(c, layer) {
		return false
	}
	if e.o.Database != nil {
		return bytes.Equal(o.Note, e.noteOf(c, layer))
	}
	return !e.expired(o)
}

// expired reports whether an object with a key of ours is too old.
func (e *Engine) expired(o tier.Object) bool {
	if e.o.TTL == 0 || len(o.Note) != noteSize {
		return false
	}
	stored := time.UnixMilli(int64(binary.LittleEndian.Uint64(o.Note)))
	return e.o.Now().Sub(stored) > e.o.TTL
}
