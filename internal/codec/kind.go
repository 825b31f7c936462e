package codec

// Kind is what a value is.
type Kind uint8

// The kinds of MessagePack.
const (
	KindNone Kind = iota // no value: the document ends, or the byte 0xc1
	KindNil
	KindBool
	KindInt
	KindFloat
	KindStr
	KindBin
	KindArray
	KindMap
	KindExt
)

// String returns the kind as errors name it.
func (k Kind) String() string { return kindNames[k] }

var kindNames = [...]string{
	KindNone: "no value", KindNil: "nil", KindBool: "a bool", KindInt: "an integer", KindFloat: "a float",
	KindStr: "a string", KindBin: "bytes", KindArray: "an array", KindMap: "a map", KindExt: "an extension",
}

// kinds has the kind of a value by its first byte.
var kinds = func() (t [256]Kind) {
	fill := func(from, to int, k Kind) {
		for c := from; c <= to; c++ {
			t[c] = k
		}
	}
	fill(0x00, 0x7f, KindInt)
	fill(0x80, 0x8f, KindMap)
	fill(0x90, 0x9f, KindArray)
	fill(0xa0, 0xbf, KindStr)
	fill(0xc0, 0xc0, KindNil)
	fill(0xc2, 0xc3, KindBool)
	fill(0xc4, 0xc6, KindBin)
	fill(0xc7, 0xc9, KindExt)
	fill(0xca, 0xcb, KindFloat)
	fill(0xcc, 0xd3, KindInt)
	fill(0xd4, 0xd8, KindExt)
	fill(0xd9, 0xdb, KindStr)
	fill(0xdc, 0xdd, KindArray)
	fill(0xde, 0xdf, KindMap)
	fill(0xe0, 0xff, KindInt)
	return t
}()

// Peek returns the kind of the next value. The calls of msgp take several kinds for
// one another (a string for bytes), so each read looks first.
func (d *Decoder) Peek() Kind {
	if d.pos >= len(d.doc) {
		return KindNone
	}
	return kinds[d.doc[d.pos]]
}
