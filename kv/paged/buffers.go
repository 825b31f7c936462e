package paged

import "strings"

// Geometry is the size of an engine's KV buffers.
type Geometry struct {
	Layout      Layout
	Layers      int
	Blocks      int // of each layer
	BlockTokens int // tokens of a block
	Heads       int // of keys, and of values
	HeadSize    int // elements
	ElementSize int // bytes
}

// Limits of a Geometry, so that no product of them overflows: 2^20 * 2^32 is below 2^63 with the bytes of a
// token.
const (
	maxLayers   = 1 << 12
	maxSlots    = 1 << 36
	maxRowBytes = 1 << 20 // bytes of a token in one layer and plane
	maxBuffer   = 1 << 50 // bytes of a tensor
)

// Validate reports what is wrong with a geometry.
func (g Geometry) Validate() error {
	switch {
	case g.Layout.Planes() == 0:
		return refuse("no layout %q", string(g.Layout))
	case g.Layers < 1 || g.Layers > maxLayers:
		return refuse("%d layers; 1 to %d are possible", g.Layers, maxLayers)
	case g.Blocks < 1 || g.BlockTokens < 1 || g.Blocks > maxSlots/g.BlockTokens:
		return refuse("%d blocks of %d tokens; 1 to %d tokens are possible", g.Blocks, g.BlockTokens, maxSlots)
	case g.Heads < 1 || g.HeadSize < 1 || g.ElementSize < 1 ||
		g.Heads > maxRowBytes || g.HeadSize > maxRowBytes || g.ElementSize > maxRowBytes ||
		g.Heads > maxRowBytes/g.HeadSize || g.Heads*g.HeadSize > maxRowBytes/g.ElementSize:
		return refuse("%d heads of %d elements of %d bytes; a token has 1 to %d bytes in a layer and plane",
			g.Heads, g.HeadSize, g.ElementSize, maxRowBytes)
	case g.Layout == MLA && g.Heads != 1:
		return refuse("%d heads; the layout %s has 1", g.Heads, g.Layout)
	case g.TensorBytes() > maxBuffer:
		return refuse("a tensor of more than %d bytes", maxBuffer)
	}
	return nil
}

// row returns the bytes of a token in one layer and plane.
func (g Geometry) row() int { return g.Heads * g.HeadSize * g.ElementSize }

// Tensors returns how many tensors the buffers are.
func (g Geometry) Tensors() int {
	outer, _, _ := strings.Cut(orders[g.Layout], "|")
	n := 1
	for _, d := range outer {
		n *= g.size(d)
	}
	return n
}

// TensorBytes returns the size of each tensor.
func (g Geometry) TensorBytes() int {
	_, inner, _ := strings.Cut(orders[g.Layout], "|")
	rows := 1
	for _, d := range inner {
		if d == 'H' {
			continue // of the row
		}
		n := g.size(d)
		if rows > maxBuffer/n {
			return maxBuffer + 1
		}
		rows *= n
	}
	if rows > maxBuffer/g.row() {
		return maxBuffer + 1
	}
	return rows * g.row()
}

// size returns the size of a dimension.
func (g Geometry) size(d rune) int {
	switch d {
	case 'L':
		return g.Layers
	case '2':
		return 2
	case 'B':
		return g.Blocks
	case 'T':
		return g.BlockTokens
	}
	return g.Heads
}

// ChunkBytes returns the size of the chunk of so many tokens: of one layer, or of all layers.
func (g Geometry) ChunkBytes(tokens int, oneLayer bool) int {
	n := g.Layout.Planes() * tokens * g.row()
	if !oneLayer {
		n *= g.Layers
	}
	return n
}

// Buffers are the KV buffers of an engine.
type Buffers struct {
	g       Geometry
	tensors [][]byte
	planes  int
	row     int // bytes of a token in one layer and plane
	head    int // bytes of a head of it
	// How many bytes apart in a tensor the next one of a dimension is, or how many tensors.
	byLayer, byPlane   stride
	block, token, step int  // step is from head to head
	flat               bool // slots lie one behind the other, also from block to block
	rows               bool // the heads of a token lie one behind the other
}

// A stride is how far the next layer or plane is.
type stride struct{ tensors, bytes int }

// New returns the buffers that lie in these tensors, in the order of the dimensions in front of the last
// "_X_" of the layout's name: one for each layer with most layouts. Each has exactly the size that the
// geometry gives it.
func New(g Geometry, tensors [][]byte) (*Buffers, error) {
	if err := g.Validate(); err != nil {
		return nil, err
	}
	if len(tensors) != g.Tensors() {
		return nil, refuse("%d tensors; %d layers in the layout %s are %d",
			len(tensors), g.Layers, g.Layout, g.Tensors())
	}
	for i, t := range tensors {
		if len(t) != g.TensorBytes() {
			return nil, refuse("tensor %d has %d bytes, and its dimensions %d", i, len(t), g.TensorBytes())
		}
	}
	b := &Buffers{g: g, tensors: tensors, planes: g.Layout.Planes(), row: g.row(), head: g.HeadSize * g.ElementSize}
	outer, inner, _ := strings.Cut(orders[g.Layout], "|")
	n := 1
	for i := len(outer) - 1; i >= 0; i-- {
		b.set(outer[i], stride{tensors: n})
		n *= g.size(rune(outer[i]))
	}
	n = b.head
	for i := len(inner) - 1; i >= 0; i-- {
		b.set(inner[i], stride{bytes: n})
		n *= g.size(rune(inner[i]))
	}
	b.rows = b.token == b.row
	b.flat = b.block == b.token*g.BlockTokens
	return b, nil
}

func (b *Buffers) set(dim byte, s stride) {
	switch dim {
	case 'L':
		b.byLayer = s
	case '2':
		b.byPlane = s
	case 'B':
		b.block = s.bytes
	case 'T':
		b.token = s.bytes
	case 'H':
		b.step = s.bytes
	}
}

// Geometry returns what the buffers were made with.
func (b *Buffers) Geometry() Geometry { return b.g }

// Slots returns the number of slots: those from 0 on are there.
func (b *Buffers) Slots() int { return b.g.Blocks * b.g.BlockTokens }

// plane returns the bytes of a tensor from the first of a layer and plane on.
func (b *Buffers) plane(layer, plane int) []byte {
	t := b.tensors[layer*b.byLayer.tensors+plane*b.byPlane.tensors]
	return t[layer*b.byLayer.bytes+plane*b.byPlane.bytes:]
}
