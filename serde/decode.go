package serde

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"unicode/utf8"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"

	"github.com/ringcache/ringcache/internal/msgpackguard"
	"github.com/ringcache/ringcache/pycompat"
)

// guardLimits leaves room for the levels around the data of an elem.
var guardLimits = msgpackguard.Limits{Depth: MaxDepth + 16}

// decoder reads one main document by the streaming calls of the msgpack
// decoder, which takes no byte beyond the value it is asked for, as long as its
// reader is an io.ByteScanner. So the reader tells the position at any time,
// and payloads are sliced out of the document instead of being read.
//
// The document is checked by msgpackguard first, but may lie in memory that a
// peer can change at any time. Hence every length is checked again where it is
// used; memory safety does not hang on the guard.
type decoder struct {
	doc    []byte
	r      bytes.Reader
	mp     *msgpack.Decoder
	gen    *pycompat.Generation
	frames Frames
	used   []bool // frames that a tensor has taken
	key    string // of the elem at hand, for errors
	budget int    // entries that may still be allocated ahead of being read
	cost   int    // see charge

	anyFrames bool // values that are passed over may have frames, too
}

func newDecoder(f Frames, o Options) (*decoder, error) {
	if len(f) == 0 {
		return nil, &CorruptError{What: "frames", Offset: -1, Want: "a main document", Got: "none"}
	}
	if err := msgpackguard.Check(f[0], guardLimits); err != nil {
		ge := err.(*msgpackguard.Error)
		return nil, &CorruptError{What: "main document", Offset: ge.Offset, Want: "one MessagePack value", Got: ge.Problem}
	}
	var err error
	if o.Generation, err = pycompat.Resolve(o.Generation); err != nil {
		return nil, err
	}
	return unguardedDecoder(f, o), nil
}

// unguardedDecoder needs a generation that was resolved.
func unguardedDecoder(f Frames, o Options) *decoder {
	d := &decoder{doc: f[0], gen: o.Generation, frames: f, used: make([]bool, len(f)), budget: len(f[0])}
	d.r.Reset(d.doc)
	d.mp = msgpack.GetDecoder()
	d.mp.Reset(&d.r)
	return d
}

// decodeWhole reads a document that holds one value and nothing else, all of
// whose frames are taken.
func decodeWhole[T any](f Frames, o Options, read func(*decoder) (T, error)) (v T, err error) {
	d, err := newDecoder(f, o)
	if err != nil {
		return v, err
	}
	return finish(d, read)
}

func finish[T any](d *decoder, read func(*decoder) (T, error)) (v T, err error) {
	defer msgpack.PutDecoder(d.mp)
	got, err := read(d)
	if err != nil {
		return v, err
	}
	if n := d.r.Len(); n > 0 {
		return v, d.corrupt("main document", "its end", fmt.Sprintf("%d more bytes", n))
	}
	for i := 1; i < len(d.used); i++ {
		if !d.used[i] && !d.anyFrames {
			return v, &CorruptError{What: "frames", Offset: -1, Want: "a tensor for each", Got: fmt.Sprintf("none for frame %d", i)}
		}
	}
	return got, nil
}

func (d *decoder) pos() int { return len(d.doc) - d.r.Len() }

func (d *decoder) corrupt(what, want, got string) error {
	if d.key != "" {
		what = fmt.Sprintf("%s of elem %.64q", what, d.key)
	}
	return &CorruptError{What: what, Offset: d.pos(), Want: want, Got: got}
}

// broken is for an error of the msgpack decoder, where the input ends too soon.
func (d *decoder) broken(what string, err error) error {
	return d.corrupt(what, "more bytes", err.Error())
}

type kind string

const (
	kindNil   kind = "nil"
	kindBool  kind = "a bool"
	kindInt   kind = "an integer"
	kindFloat kind = "a float"
	kindStr   kind = "a string"
	kindBin   kind = "bytes"
	kindArray kind = "an array"
	kindMap   kind = "a map"
	kindExt   kind = "an extension"
	kindNone  kind = "no value"
)

// peek tells the kind of the next value. The msgpack decoder's own calls take
// several kinds for one another (nil for 0, an extension in front of a map), so
// each read looks first.
func (d *decoder) peek() kind {
	c, err := d.mp.PeekCode()
	switch {
	case err != nil:
		return kindNone
	case msgpcode.IsFixedNum(c), c >= msgpcode.Uint8 && c <= msgpcode.Int64:
		return kindInt
	case msgpcode.IsString(c):
		return kindStr
	case msgpcode.IsFixedArray(c), c == msgpcode.Array16, c == msgpcode.Array32:
		return kindArray
	case msgpcode.IsFixedMap(c), c == msgpcode.Map16, c == msgpcode.Map32:
		return kindMap
	case c == msgpcode.Nil:
		return kindNil
	case c == msgpcode.True, c == msgpcode.False:
		return kindBool
	case c == msgpcode.Float, c == msgpcode.Double:
		return kindFloat
	case msgpcode.IsBin(c):
		return kindBin
	case msgpcode.IsExt(c):
		return kindExt
	}
	return kindNone
}

func (d *decoder) expect(k kind, what string) error {
	if got := d.peek(); got != k {
		return d.corrupt(what, string(k), string(got))
	}
	return nil
}

// array reads the length of an array, whose elements all have at least one byte.
func (d *decoder) array(what string) (int, error) {
	if err := d.expect(kindArray, what); err != nil {
		return 0, err
	}
	n, err := d.mp.DecodeArrayLen()
	if err != nil {
		return 0, d.broken(what, err)
	}
	return n, d.fits(what, n)
}

func (d *decoder) arrayOf(want int, what string) error {
	n, err := d.array(what)
	if err == nil && n != want {
		err = d.corrupt(what, fmt.Sprintf("an array of %d", want), fmt.Sprintf("one of %d", n))
	}
	return err
}

func (d *decoder) mapLen(what string) (int, error) {
	if err := d.expect(kindMap, what); err != nil {
		return 0, err
	}
	n, err := d.mp.DecodeMapLen()
	if err != nil {
		return 0, d.broken(what, err)
	}
	return n, d.fits(what, n)
}

func (d *decoder) fits(what string, n int) error {
	if n < 0 || n > d.r.Len() {
		return d.corrupt(what, fmt.Sprintf("at most the %d that are left", d.r.Len()), fmt.Sprintf("length %d", n))
	}
	return nil
}

// view slices the next n bytes out of the document.
func (d *decoder) view(what string, n int) ([]byte, error) {
	if err := d.fits(what, n); err != nil {
		return nil, err
	}
	at := d.pos()
	if _, err := d.r.Seek(int64(n), io.SeekCurrent); err != nil {
		return nil, d.broken(what, err)
	}
	return d.doc[at : at+n : at+n], nil
}

// str returns a view of a string; it may change under the caller's hands.
func (d *decoder) str(what string) ([]byte, error) {
	if err := d.expect(kindStr, what); err != nil {
		return nil, err
	}
	n, err := d.mp.DecodeBytesLen()
	if err != nil {
		return nil, d.broken(what, err)
	}
	return d.view(what, n)
}

// text returns a string of its own.
func (d *decoder) text(what string) (string, error) {
	b, err := d.str(what)
	if err != nil {
		return "", err
	}
	s := string(b)
	if !utf8.ValidString(s) {
		return "", d.corrupt(what, "UTF-8", fmt.Sprintf("%.64q", s))
	}
	return s, nil
}

// number reads an integer as Int, or Uint where an int64 cannot hold it.
func (d *decoder) number(what string) (Data, error) {
	if err := d.expect(kindInt, what); err != nil {
		return nil, err
	}
	if c, _ := d.mp.PeekCode(); c == msgpcode.Uint64 {
		u, err := d.mp.DecodeUint64()
		if err != nil {
			return nil, d.broken(what, err)
		}
		if u > math.MaxInt64 {
			return Uint(u), nil
		}
		return Int(u), nil
	}
	n, err := d.mp.DecodeInt64()
	if err != nil {
		return nil, d.broken(what, err)
	}
	return Int(n), nil
}

func (d *decoder) int64(what string) (int64, error) {
	if err := d.expect(kindInt, what); err != nil {
		return 0, err
	}
	if c, _ := d.mp.PeekCode(); c != msgpcode.Uint64 { // all that need no interface
		n, err := d.mp.DecodeInt64()
		if err != nil {
			return 0, d.broken(what, err)
		}
		return n, nil
	}
	v, err := d.number(what)
	if err != nil {
		return 0, err
	}
	if n, ok := v.(Int); ok {
		return int64(n), nil
	}
	return 0, d.corrupt(what, "a signed 64-bit integer", fmt.Sprint(v))
}

// int reads an int that is at least low.
func (d *decoder) int(what string, low int) (int, error) {
	n, err := d.int64(what)
	if err != nil {
		return 0, err
	}
	if int64(int(n)) != n || int(n) < low {
		return 0, d.corrupt(what, fmt.Sprintf("at least %d", low), fmt.Sprint(n))
	}
	return int(n), nil
}

func (d *decoder) boolean(what string) (bool, error) {
	if err := d.expect(kindBool, what); err != nil {
		return false, err
	}
	b, err := d.mp.DecodeBool()
	if err != nil {
		return false, d.broken(what, err)
	}
	return b, nil
}

// null consumes a nil if one is next.
func (d *decoder) null() bool {
	return d.peek() == kindNil && d.mp.DecodeNil() == nil
}

// skip passes over one value of any kind.
func (d *decoder) skip(what string) error {
	end, err := msgpackguard.Next(d.doc, d.pos(), guardLimits)
	if err != nil {
		return d.broken(what, err)
	}
	_, err = d.view(what, end-d.pos())
	return err
}

// room turns a length from the input into a capacity. All capacities together
// are no more than the document has bytes, whatever lengths it declares.
func (d *decoder) room(n int) int {
	n = min(n, d.budget)
	d.budget -= n
	return n
}

// small is like room for entries that are large against their shortest
// encoding; append does the rest, so that memory follows what is really there.
func small(n int) int { return min(n, 16) }
