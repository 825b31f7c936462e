package codec

import (
	"bytes"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"

	"github.com/ringcache/ringcache/internal/msgpackguard"
)

// Decoder reads one main document by the streaming calls of the msgpack
// decoder, which takes no byte beyond the value it is asked for, as long as its
// reader is an io.ByteScanner. So the position is known at any time,
// and payloads are sliced out of the document instead of being read.
//
// The document is checked by msgpackguard first, but may lie in memory that a
// peer can change at any time. Hence every length is checked again where it is
// used; memory safety does not hang on the guard.
type Decoder struct {
	// Elem is the key of the elem of an item that is being read, for errors.
	Elem string
	// AnyFrames allows frames that no array refers to: values that are passed over
	// may have some.
	AnyFrames bool

	doc    []byte
	r      bytes.Reader
	mp     *msgpack.Decoder
	frames [][]byte // nil for those that an array has taken
	budget int      // entries that may still be allocated ahead of being read
	cost   int      // see Charge
}

// Decode reads a document that holds one value and nothing else, all of whose
// frames are taken.
func Decode[T any](frames [][]byte, read func(*Decoder) (T, error)) (v T, err error) {
	if len(frames) == 0 {
		return v, &CorruptError{What: "frames", Offset: -1, Want: "a main document", Got: "none"}
	}
	if err := msgpackguard.Check(frames[0], guardLimits); err != nil {
		ge := err.(*msgpackguard.Error)
		return v, &CorruptError{What: "main document", Offset: ge.Offset, Want: "one MessagePack value", Got: ge.Problem}
	}
	return DecodeUnguarded(frames, read)
}

// DecodeUnguarded is Decode behind its guard, for tests of what happens where a
// document changes behind the guard's back.
func DecodeUnguarded[T any](frames [][]byte, read func(*Decoder) (T, error)) (v T, err error) {
	own := make([][]byte, len(frames))
	for i, f := range frames {
		if own[i] = f; f == nil {
			own[i] = []byte{}
		}
	}
	d := &Decoder{doc: own[0], frames: own, budget: len(own[0])}
	got, err := run(d, 0, read)
	if err != nil {
		return v, err
	}
	if n := d.r.Len(); n > 0 {
		return v, d.Corrupt("main document", "its end", fmt.Sprintf("%d more bytes", n))
	}
	for i := 1; i < len(own); i++ {
		if own[i] != nil && !d.AnyFrames {
			return v, &CorruptError{What: "frames", Offset: -1, Want: "a tensor for each", Got: fmt.Sprintf("none for frame %d", i)}
		}
	}
	return got, nil
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
		return v, 0, &CorruptError{What: "main document", Offset: ge.Offset, Want: "a MessagePack value", Got: ge.Problem}
	}
	d := &Decoder{doc: frames[0][:end], frames: frames, budget: end - at}
	got, err := run(d, at, read)
	if err != nil {
		return v, 0, err
	}
	if n := d.r.Len(); n > 0 {
		return v, 0, d.Corrupt("value", "its end", fmt.Sprintf("%d more bytes", n))
	}
	return got, end, nil
}

func run[T any](d *Decoder, at int, read func(*Decoder) (T, error)) (T, error) {
	d.r.Reset(d.doc)
	d.Seek(at)
	d.mp = msgpack.GetDecoder()
	d.mp.Reset(&d.r)
	defer msgpack.PutDecoder(d.mp)
	return read(d)
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
func (d *Decoder) Pos() int { return len(d.doc) - d.r.Len() }

// Corrupt returns a [CorruptError] at the position that was reached.
func (d *Decoder) Corrupt(what, want, got string) error {
	if d.Elem != "" {
		what = fmt.Sprintf("%s of elem %.64q", what, d.Elem)
	}
	return &CorruptError{What: what, Offset: d.Pos(), Want: want, Got: got}
}

// broken is for an error of the msgpack decoder, where the input ends too soon.
func (d *Decoder) broken(what string, err error) error {
	return d.Corrupt(what, "more bytes", err.Error())
}

// Kind is what a value is, as errors name it.
type Kind string

// The kinds of MessagePack.
const (
	KindNil   Kind = "nil"
	KindBool  Kind = "a bool"
	KindInt   Kind = "an integer"
	KindFloat Kind = "a float"
	KindStr   Kind = "a string"
	KindBin   Kind = "bytes"
	KindArray Kind = "an array"
	KindMap   Kind = "a map"
	KindExt   Kind = "an extension"
	KindNone  Kind = "no value"
)

// Peek returns the kind of the next value. The msgpack decoder's own calls take
// several kinds for one another (nil for 0, an extension in front of a map), so
// each read looks first.
func (d *Decoder) Peek() Kind {
	c, err := d.mp.PeekCode()
	switch {
	case err != nil:
		return KindNone
	case msgpcode.IsFixedNum(c), c >= msgpcode.Uint8 && c <= msgpcode.Int64:
		return KindInt
	case msgpcode.IsString(c):
		return KindStr
	case msgpcode.IsFixedArray(c), c == msgpcode.Array16, c == msgpcode.Array32:
		return KindArray
	case msgpcode.IsFixedMap(c), c == msgpcode.Map16, c == msgpcode.Map32:
		return KindMap
	case c == msgpcode.Nil:
		return KindNil
	case c == msgpcode.True, c == msgpcode.False:
		return KindBool
	case c == msgpcode.Float, c == msgpcode.Double:
		return KindFloat
	case msgpcode.IsBin(c):
		return KindBin
	case msgpcode.IsExt(c):
		return KindExt
	}
	return KindNone
}

// Expect refuses a next value of another kind.
func (d *Decoder) Expect(k Kind, what string) error {
	if got := d.Peek(); got != k {
		return d.Corrupt(what, string(k), string(got))
	}
	return nil
}

// Array reads the length of an array, whose elements all have at least one byte.
func (d *Decoder) Array(what string) (int, error) {
	if err := d.Expect(KindArray, what); err != nil {
		return 0, err
	}
	n, err := d.mp.DecodeArrayLen()
	if err != nil {
		return 0, d.broken(what, err)
	}
	return n, d.fits(what, n)
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
	n, err := d.mp.DecodeMapLen()
	if err != nil {
		return 0, d.broken(what, err)
	}
	return n, d.fits(what, n)
}

func (d *Decoder) fits(what string, n int) error {
	if n < 0 || n > d.r.Len() {
		return d.Corrupt(what, fmt.Sprintf("at most the %d that are left", d.r.Len()), fmt.Sprintf("length %d", n))
	}
	return nil
}

// view slices the next n bytes out of the document.
func (d *Decoder) view(what string, n int) ([]byte, error) {
	if err := d.fits(what, n); err != nil {
		return nil, err
	}
	at := d.Pos()
	if _, err := d.r.Seek(int64(n), io.SeekCurrent); err != nil {
		return nil, d.broken(what, err)
	}
	return d.doc[at : at+n : at+n], nil
}

// TextView returns a view of a string; it may change under the caller's hands.
func (d *Decoder) TextView(what string) ([]byte, error) {
	if err := d.Expect(KindStr, what); err != nil {
		return nil, err
	}
	n, err := d.mp.DecodeBytesLen()
	if err != nil {
		return nil, d.broken(what, err)
	}
	return d.view(what, n)
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
	return d.Peek() == KindNil && d.mp.DecodeNil() == nil
}

// Skip passes over one value of any kind.
func (d *Decoder) Skip(what string) error {
	end, err := msgpackguard.Next(d.doc, d.Pos(), guardLimits)
	if err != nil {
		return d.broken(what, err)
	}
	_, err = d.view(what, end-d.Pos())
	return err
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
