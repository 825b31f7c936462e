package fault

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
)

// Kind is a way to damage a file.
type Kind int

// The kinds of damage. Words have 8 bytes and pages 4096, at multiples of that; they are cut off
// where the damage may not go.
const (
	FlipBit   Kind = iota // one bit
	ChangeBit             // one bit of a word becomes 0 or 1, so it may be no change
	WriteByte             // a random byte
	WriteWord             // a random word
	ZeroWord
	OnesWord // every bit is set
	WritePage
	ZeroPage
	WriteRange // random bytes, of any length
	ZeroRange
	OnesRange
	Truncate // the file ends at a random byte
	kinds
)

// Kinds returns all kinds of damage.
func Kinds() []Kind {
	all := make([]Kind, kinds)
	for i := range all {
		all[i] = Kind(i)
	}
	return all
}

// String is the damage in words.
func (k Kind) String() string {
	names := [kinds]string{
		"flip bit", "change bit", "write byte", "write word", "zero word", "ones word", "write page", "zero page",
		"write range", "zero range", "ones range", "truncate",
	}
	if k < 0 || k >= kinds {
		return fmt.Sprintf("Kind(%d)", int(k))
	}
	return names[k]
}

// Change is damage that was done to a file.
type Change struct {
	Kind   Kind
	Path   string
	Offset int64
	Was    []byte // the bytes from Offset on
	Is     []byte // what they are now; shorter where the file was truncated
}

// String says what was damaged, and where.
func (c Change) String() string {
	return fmt.Sprintf("%v: %d bytes at offset %d of %s", c.Kind, len(c.Was), c.Offset, c.Path)
}

// Apply damages the bytes of a file from an offset up to another, in place: mappings of the file
// see it. If to is 0, it is the end of the file. The same seed does the same.
func (k Kind) Apply(path string, from, to int64, seed uint64) (c Change, err error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	st, err := f.Stat()
	if err != nil {
		return c, err
	}
	if to == 0 || to > st.Size() {
		to = st.Size()
	}
	if from < 0 || from >= to || k < 0 || k >= kinds {
		return c, fmt.Errorf("fault: %v: no bytes from %d to %d in %s", k, from, to, path)
	}
	rng := rand.New(rand.NewPCG(seed, uint64(k)))
	c = Change{Kind: k, Path: path, Offset: from + rng.Int64N(to-from)}
	n := k.size(rng, to-c.Offset)
	if n == 8 || n == 4096 {
		c.Offset = max(c.Offset/n*n, from)
	}
	if k == Truncate {
		n, to = st.Size()-c.Offset, st.Size()
	}
	c.Was = make([]byte, min(n, to-c.Offset))
	if _, err := f.ReadAt(c.Was, c.Offset); err != nil {
		return c, err
	}
	if k == Truncate {
		return c, f.Truncate(c.Offset)
	}
	c.Is = k.bytes(rng, c.Was)
	_, err = f.WriteAt(c.Is, c.Offset)
	return c, err
}

// size returns how many bytes are damaged, of those that are there.
func (k Kind) size(rng *rand.Rand, there int64) int64 {
	switch k {
	case FlipBit, ChangeBit, WriteByte:
		return 1
	case WriteWord, ZeroWord, OnesWord:
		return 8
	case WritePage, ZeroPage:
		return 4096
	default:
		return 1 + rng.Int64N(min(there, 1<<16))
	}
}

func (k Kind) bytes(rng *rand.Rand, was []byte) []byte {
	b := make([]byte, len(was))
	copy(b, was)
	bit := byte(1) << rng.IntN(8)
	for i := range b {
		switch k {
		case FlipBit:
			b[i] ^= bit
		case ChangeBit:
			if b[i] |= bit; rng.IntN(2) == 0 {
				b[i] &^= bit
			}
		case ZeroWord, ZeroPage, ZeroRange:
			b[i] = 0
		case OnesWord, OnesRange:
			b[i] = 0xff
		default:
			b[i] = byte(rng.Uint32())
		}
	}
	return b
}

// Undo writes back what was there, and gives a truncated file its length again.
func (c Change) Undo() (err error) {
	f, err := os.OpenFile(c.Path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = f.WriteAt(c.Was, c.Offset)
	return err
}
