package kvload

import (
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"

	"google.golang.org/protobuf/encoding/protowire"
)

// Prompt is the tokens of a request.
type Prompt struct {
	tokens  []uint32
	chunk   int
	packed  []byte // as 0.5.7 sends them
	varints []byte // as 0.5.6 does
	sums    [][sha256.Size]byte
}

// family is how many prompts have their first chunks in common, and shared how many chunks these are.
const (
	family = 8
	shared = 4
)

// NewPrompt returns the prompt of a number, with chunks of so many tokens: the same in every process. Prompts whose
// numbers are near each other begin with the same chunks.
func NewPrompt(number, chunks, chunk int) *Prompt {
	p := &Prompt{chunk: chunk}
	var sum [sha256.Size]byte
	for c := range chunks {
		seed := uint64(number)
		if c < shared {
			seed = uint64(number / family)
		}
		rng := rand.New(rand.NewPCG(seed, uint64(c)))
		begin := len(p.packed)
		for range chunk {
			t := rng.Uint32N(150_000)
			p.tokens = append(p.tokens, t)
			p.packed = binary.BigEndian.AppendUint32(p.packed, t)
			p.varints = protowire.AppendVarint(p.varints, uint64(t))
		}
		sum = sha256.Sum256(append(sum[:], p.packed[begin:]...))
		p.sums = append(p.sums, sum)
	}
	return p
}

// Chunks returns how many chunks the prompt has.
func (p *Prompt) Chunks() int { return len(p.sums) }

// source is where the bytes of an object come from.
func (p *Prompt) source(chunk int, identity string) *rand.PCG {
	sum := sha256.Sum256(append(p.sums[chunk][:], identity...))
	return rand.NewPCG(binary.LittleEndian.Uint64(sum[:]), binary.LittleEndian.Uint64(sum[8:]))
}

// fill writes the bytes of an object, whose number is a multiple of 8.
func (p *Prompt) fill(b []byte, chunk int, identity string) {
	for src := p.source(chunk, identity); len(b) > 0; b = b[8:] {
		binary.LittleEndian.PutUint64(b, src.Uint64())
	}
}

// same reports whether bytes are all those of an object.
func (p *Prompt) same(b []byte, chunk int, identity string) bool {
	for src := p.source(chunk, identity); len(b) > 0; b = b[8:] {
		if binary.LittleEndian.Uint64(b) != src.Uint64() {
			return false
		}
	}
	return true
}
