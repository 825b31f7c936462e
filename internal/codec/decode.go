package codec

import (
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/tinylib/msgp/msgp"

	"github.com/ringcache/ringcache/internal/msgpackguard"
)

// Decoder reads one main document, which is a slice: it keeps a position in it, and
// slices strings and payloads out of it.
//
// The document is checked by msgpackguard first, but may lie in memory that a
// peer can change at any time. Hence every length is checked again where it is
// used; memory safety does not hang on the guard.
//
// The zero value is ready for Begin.
type Decoder struct {
	// Elem is the key of the elem of an item that is being read, for errors.
	Elem string
	// AnyFrames allows frames that no array refers to: values that are passed over
	// may have some.
	AnyFrames bool

	doc    []byte
	pos    int      // in doc
	frames [][]byte // nil for those that an array has taken
	budget int      // entries that may still be allocated ahead of being read
	cost   int      // see Charge
}

// Decode reads a document that holds one value and nothing else, all of whose
// frames are taken.
func Decode[T any](frames [][]byte, read func(*Decoder) (T, error)) (v T, err error) {
	if err := guard(frames); err != nil {
		return v, err
	}
	return DecodeUnguarded(frames, read)
}

func guard(frames [][]byte) error {
	if len(frames) == 0 {
		return &CorruptError{What: "frames", Offset: -1, Want: "a main document", Got: "none"}
	}
	if err := msgpackguard.Check(frames[0], guardLimits); err != nil {
		ge := err.(*msgpackguard.Error)
		return &CorruptError{What: "main document", Offset: ge.Offset, Want: "one MessagePack value", Got: ge.Problem}
	}
	return nil
}

// DecodeUnguarded is Decode behind its guard, for tests of what happens where a
// document changes behind the guard's back.
func DecodeUnguarded[T any](frames [][]byte, read func(*Decoder) (T, error)) (v T, err error) {
	d := &Decoder{}
	d.begin(slices.Clone(frames))
	got, err := read(d)
	if err == nil {
		err = d.End()
	}
	if err != nil {
		return v, err
	}
	return got, nil
}

// Begin makes d read a document that holds one value and nothing else, as [Decode]
// does, without allocating. A frame that an array takes becomes nil in frames.
func (d *Decoder) Begin(frames [][]byte) error {
	if err := guard(frames); err != nil {
		return err
	}
	d.begin(frames)
	return nil
}

func (d *Decoder) begin(frames [][]byte) {
	for i, f := range frames {
		if f == nil {
			frames[i] = []byte{}
		}
	}
	*d = Decoder{doc: frames[0], frames: frames, budget: len(frames[0])}
}

// End reports whether the value was all of the document, and all frames were taken.
func (d *Decoder) End() error {
	if n := d.left(); n > 0 {
		return d.Corrupt("main document", "its end", fmt.Sprintf("%d more bytes", n))
	}
	for i := 1; i < len(d.frames); i++ {
		if d.frames[i] != nil && !d.AnyFrames {
			return &CorruptError{
				What: "frames", Offset: -1, Want: "a tensor for each", Got: fmt.Sprintf("none for frame %d", i),
			}
		}
	}
	return nil
}

// DecodePart reads the one value that begins at a position of the main document, and
// returns the position behind it. A frame that an array takes becomes nil in frames,
// and one that is nil can't be taken.
func DecodePart[T any](frames [][]byte, at int, read func(*Decoder) (T, error)) (v T, end int, err error) {
	if len(frames) == 0 {
		return v, 0, &CorruptError{What: "frames", Offset: -1, Want: "a main document", Got: "none"}
	}
	if end, err = msgpackguard.Next(frames[0], at, guardLimits); err != nil {
		ge := err.(*msgpackguard.Error)
		return v, 0, &CorruptError{
			What: "main document", Offset: ge.Offset, Want: "a MessagePack value", Got: ge.Problem,
		}
	}
	d := &Decoder{doc: frames[0][:end], pos: at, frames: frames, budget: end - at}
	got, err := read(d)
	if err != nil {
		return v, 0, err
	}
	if n := d.left(); n > 0 {
		return v, 0, d.Corrupt("value", "its end", fmt.Sprintf("%d more bytes", n))
	}
	return got, end, nil
}

// Splice reads a value by a function that takes frames as [DecodePart] does.
func (d *Decoder) Splice(read func(frames [][]byte, at int) (end int, err error)) error {
	end, err := read(d.frames, d.Pos())
	if err == nil {
		d.Seek(end)
	}
	return err
}

// Pos returns the position in the document.
func (d *Decoder) Pos() int { return d.pos }

// left returns the number of bytes behind the position.
func (d *Decoder) left() int { return len(d.doc) - d.pos }

// rest returns the bytes behind the position, and went goes to where they begin after
// a call of msgp.
func (d *Decoder) rest() []byte     { return d.doc[d.pos:] }
func (d *Decoder) went(rest []byte) { d.pos = len(d.doc) - len(rest) }

// Corrupt returns a [CorruptError] at the position that was reached.
func (d *Decoder) Corrupt(what, want, got string) error {
	if d.Elem != "" {
		what = fmt.Sprintf("%s of elem %.64q", what, d.Elem)
	}
	return &CorruptError{What: what, Offset: d.Pos(), Want: want, Got: got}
}

// broken is for an error of msgp, where the input ends too soon or changed.
func (d *Decoder) broken(what string, err error) error {
	return d.Corrupt(what, "more bytes", err.Error())
}

// Expect refuses a next value of another kind.
func (d *Decoder) Expect(k Kind, what string) error {
	if got := d.Peek(); got != k {
		return d.Corrupt(what, k.String(), got.String())
	}
	return nil
}

// Array reads the length of an array, whose elements all have at least one byte.
func (d *Decoder) Array(what string) (int, error) {
	if err := d.Expect(KindArray, what); err != nil {
		return 0, err
	}
	n, rest, err := msgp.ReadArrayHeaderBytes(d.rest())
	if err != nil {
		return 0, d.broken(what, err)
	}
	d.went(rest)
	return int(n), d.fits(what, int(n))
}

// ArrayOf is Array for a fixed length.
func (d *Decoder) ArrayOf(want int, what string) error {
	n, err := d.Array(what)
	if err == nil && n != want {
		err = d.Corrupt(what, fmt.Sprintf("an array of %d", want), fmt.Sprintf("one of %d", n))
	}
	return err
}

// Map reads the length of a map.
func (d *Decoder) Map(what string) (int, error) {
	if err := d.Expect(KindMap, what); err != nil {
		return 0, err
	}
	n, rest, err := msgp.ReadMapHeaderBytes(d.rest())
	if err != nil {
		return 0, d.broken(what, err)
	}
	d.went(rest)
	return int(n), d.fits(what, int(n))
}

func (d *Decoder) fits(what string, n int) error {
	if n < 0 || n > d.left() {
		return d.Corrupt(what, fmt.Sprintf("at most the %d that are left", d.left()), fmt.Sprintf("length %d", n))
	}
	return nil
}

// view slices the next n bytes out of the document.
func (d *Decoder) view(what string, n int) ([]byte, error) {
	if err := d.fits(what, n); err != nil {
		return nil, err
	}
	at := d.pos
	d.pos += n
	return d.doc[at:d.pos:d.pos], nil
}

// TextView returns a view of a string; it may change under the caller's hands.
func (d *Decoder) TextView(what string) ([]byte, error) {
	if err := d.Expect(KindStr, what); err != nil {
		return nil, err
	}
	s, rest, err := msgp.ReadStringZC(d.rest())
	if err != nil {
		return nil, d.broken(what, err)
	}
	d.went(rest)
	return s[:len(s):len(s)], nil
}

// Text returns a string of its own.
func (d *Decoder) Text(what string) (string, error) {
	b, err := d.TextView(what)
	if err != nil {
		return "", err
	}
	s := string(b)
	if !utf8.ValidString(s) {
		return "", d.Corrupt(what, "UTF-8", fmt.Sprintf("%.64q", s))
	}
	return s, nil
}

// Nil consumes a nil if one is next.
func (d *Decoder) Nil() bool {
	if d.Peek() != KindNil {
		return false
	}
	d.pos++
	return true
}

// Skip passes over one value of any kind.
func (d *Decoder) Skip(what string) error {
	end, err := msgpackguard.Next(d.doc, d.pos, guardLimits)
	if err != nil {
		return d.broken(what, err)
	}
	d.pos = end
	return nil
}

// Room turns a length from the input into a capacity. All capacities together
// are no more than the document has bytes, whatever lengths it declares.
func (d *Decoder) Room(n int) int {
	n = min(n, d.budget)
	d.budget -= n
	return n
}

// Small is like Room for entries that are large against their shortest
// encoding; append does the rest, so that memory follows what is really there.
func Small(n int) int { return min(n, 16) }
