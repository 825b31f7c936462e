package kv

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/ringcache/ringcache/internal/spacename"
	"github.com/ringcache/ringcache/internal/torchdtype"
)

// Limits of a Layout. Groups and bytes are limited as by LMCache 0.5.7.
const (
	maxGroups      = 64
	maxObjectBytes = int64(2 << 30)
	maxSlots       = 1 << 20
	maxWindow      = 1 << 20 // chunks
	maxEngine      = 255     // bytes
	readableModel  = 64      // bytes of a model's name that stay readable
)

// A Layout is everything that decides whether the KV cache of one worker fits another: what the worker registers
// about itself, and what the operator says about the engine.
type Layout struct {
	Model string // as the engine has it; engines that share a cache spell it alike
	// Engine is what computes the bytes, as far as the operator says: release of the engine, kind of attention,
	// revision of the weights. No message has it. "" lets engines meet that differ in it.
	Engine      string
	World       int // number of workers, each of which has its own part
	ChunkTokens int
	Groups      []Group // at least one
}

// A Group is the layers of a model that have one form of KV cache. Most models have one group.
type Group struct {
	Layers      int
	Slots       int // of one chunk: its tokens, or those of a window that it keeps
	Hidden      int // elements of one token in one layer and plane
	DType       string
	Planes      int  // 2 if keys and values lie in two planes, else 1 (LMCache's use_mla, or a kv_size of 1)
	BlockTokens int  // tokens of a block of the engine; a chunk is whole blocks
	Window      int  // how many chunks at the end of a prefix the group needs; 0 is all
	Recurrent   bool // snapshots of a state, not something for each token
}

// Validate reports what is wrong with a layout.
func (l Layout) Validate() error { return invalid(l.check()) }

func (l Layout) check() error {
	if err := checkModel(l.Model); err != nil {
		return err
	}
	if err := checkWorker(l.World, 0); err != nil {
		return err
	}
	switch {
	case len(l.Engine) > maxEngine || !utf8.ValidString(l.Engine):
		return fmt.Errorf("layout: the engine has more than %d bytes, or is no UTF-8", maxEngine)
	case l.ChunkTokens < 1 || l.ChunkTokens > maxChunkTokens:
		return fmt.Errorf("layout: a chunk of %d tokens; 1 to %d are possible", l.ChunkTokens, maxChunkTokens)
	case len(l.Groups) < 1 || len(l.Groups) > maxGroups:
		return fmt.Errorf("layout: %d groups; 1 to %d are possible", len(l.Groups), maxGroups)
	}
	for i, g := range l.Groups {
		if err := g.check(l.ChunkTokens); err != nil {
			return fmt.Errorf("group %d of the layout: %w", i, err)
		}
	}
	return nil
}

func (g Group) check(chunkTokens int) error {
	dtype := torchdtype.Find(g.DType)
	switch {
	case dtype == nil:
		return fmt.Errorf("the dtype %q is none that LMCache has keys for", g.DType)
	case g.Planes != 1 && g.Planes != 2:
		return fmt.Errorf("%d planes; there are 1 or 2", g.Planes)
	case g.Layers < 1 || g.Slots < 1 || g.Hidden < 1 || g.Slots > maxSlots:
		return fmt.Errorf("%d layers, %d slots and %d elements of a token; there is one of each at least, and at most %d slots",
			g.Layers, g.Slots, g.Hidden, maxSlots)
	case g.Window < 0 || g.Window > maxWindow:
		return fmt.Errorf("a window of %d chunks; 0 to %d are possible", g.Window, maxWindow)
	case g.BlockTokens < 1 || !g.Recurrent && chunkTokens%g.BlockTokens != 0:
		return fmt.Errorf("a chunk of %d tokens is no whole number of blocks of %d", chunkTokens, g.BlockTokens)
	}
	// Each factor is checked against what is left, so that no product overflows.
	left := maxObjectBytes
	for _, n := range []int{g.Planes, g.Layers, g.Slots, g.Hidden, dtype.Size} {
		left /= int64(n)
	}
	if left == 0 {
		return fmt.Errorf("an object of %d planes, %d layers, %d slots and %d elements of %s has more than %d bytes",
			g.Planes, g.Layers, g.Slots, g.Hidden, g.DType, maxObjectBytes)
	}
	return nil
}

// Bytes returns the size of one object of a group whose layout is valid.
func (g Group) Bytes() int64 {
	return int64(g.Planes) * int64(g.Layers) * int64(g.Slots) * int64(g.Hidden) * int64(torchdtype.Find(g.DType).Size)
}

// Shape returns the shape of one object: planes if there are 2, layers, slots, elements.
func (g Group) Shape() []int {
	shape := []int{g.Planes, g.Layers, g.Slots, g.Hidden}
	if g.Planes == 1 {
		return shape[1:]
	}
	return shape
}

// Space returns the Space that the objects of one worker, group and salt have in package tier, where their
// names are the hexadecimal hashes of their chunks, and the parent of each is the chunk in front of it. A
// space is readable parts, and the first 128 bits of a SHA-256 of the whole layout, as in
// "kv.Qwen3-8B.worker0of2.group0.54998c34ef5ba11bc332b0a8cf866294": ASCII letters, digits and "-", "_", ".",
// which begin none. It is part of what lies on disks, so it stays the same in every release; docs/format.md
// has its bytes.
func (l Layout) Space(worker, group int, salt string) (string, error) {
	if err := l.check(); err != nil {
		return "", invalid(err)
	}
	if err := checkWorker(l.World, worker); err != nil {
		return "", invalid(err)
	}
	if group < 0 || group >= len(l.Groups) {
		return "", invalid(fmt.Errorf("group %d; the layout has %d", group, len(l.Groups)))
	}
	if err := checkSalt(salt); err != nil {
		return "", invalid(err)
	}
	b := []byte("ringcache kv space 1\x00")
	text := func(s string) { b = append(binary.LittleEndian.AppendUint32(b, uint32(len(s))), s...) }
	numbers := func(nn ...int) {
		for _, n := range nn {
			b = binary.LittleEndian.AppendUint64(b, uint64(n))
		}
	}
	text(l.Model)
	text(l.Engine)
	text(salt)
	numbers(l.World, worker, group, l.ChunkTokens, len(l.Groups))
	for _, g := range l.Groups {
		recurrent := 0
		if g.Recurrent {
			recurrent = 1
		}
		text(g.DType)
		numbers(g.Planes, g.Layers, g.Slots, g.Hidden, g.BlockTokens, g.Window, recurrent)
	}
	sum := sha256.Sum256(b)
	model := strings.TrimRight(l.Model, "/")
	return SpacePrefix + fmt.Sprintf("%s.worker%dof%d.group%d.%s", spacename.Readable(model[strings.LastIndexByte(model, '/')+1:], readableModel),
		worker, l.World, group, hex.EncodeToString(sum[:16])), nil
}

// SpacePrefix begins the spaces of all layouts, and those of the blocks that vLLM's own connector stores, so
// that KV can be told from other objects of a store.
const SpacePrefix = "kv."

// AlignChunk returns the number of tokens of a chunk for an engine whose blocks have so many: the least multiple of
// block that is no less than least.
func AlignChunk(least, block int) (int, error) {
	if least < 1 || block < 1 || least > maxChunkTokens || block > maxChunkTokens {
		return 0, invalid(fmt.Errorf("chunk: at least %d tokens, in blocks of %d; both are 1 to %d", least, block, maxChunkTokens))
	}
	n := (least + block - 1) / block * block
	if n > maxChunkTokens {
		return 0, invalid(fmt.Errorf("chunk: %d tokens, in blocks of %d, are more than %d", n, block, maxChunkTokens))
	}
	return n, nil
}
