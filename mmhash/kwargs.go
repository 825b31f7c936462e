package mmhash

import (
	"cmp"
	"encoding/json"
	"io"
	"math"
	"math/big"
	"slices"
	"strings"

	"github.com/ringcache/ringcache/pycompat"
)

// pickledNone is what releases before 0.14.0 hash for None.
const pickledNone = "\x80\x04N."

// pythonNaN is the bits of Python's float("nan").
const pythonNaN = 0x7ff8000000000000

// WriteStream writes to w exactly the bytes that vLLM of generation g feeds to
// its hash for these keyword arguments (MultiModalHasher.hash_kwargs,
// vllm/multimodal/hasher.py, 0.11.0 to 0.33.0). A nil generation is the
// newest. When it fails part of the stream may have been written.
func WriteStream(w io.Writer, g *pycompat.Generation, args ...Entry) error {
	g, err := pycompat.Resolve(g)
	if err != nil {
		return err
	}
	s := stream{rules: g.Hash}
	s.reset(w)
	return s.kwargs(args)
}

func (s *stream) kwargs(args []Entry) error {
	var local [16]int
	order := byName(local[:0], args)
	for i, at := range order {
		if i > 0 && args[order[i-1]].Key == args[at].Key {
			return &ValueError{strings.Clone(args[at].Key), "it is given twice, which Python refuses too", errInvalid}
		}
	}
	for i := range args {
		at := i
		if s.rules.Sorted {
			at = order[i]
		}
		outer := s.enter(args[at].Key)
		s.value(args[at].Value)
		s.leave(outer)
		if s.err != nil {
			if e, ok := s.err.(*ValueError); ok && e.Arg == "" {
				e.Arg = strings.Clone(args[at].Key)
			}
			return s.err
		}
	}
	s.flush()
	return s.err
}

// byName appends the indices of the entries in order of their names. Python
// compares code points, which for UTF-8 is the same as comparing bytes. (Indices,
// since moving the entries would make their values escape.)
func byName(order []int, entries []Entry) []int {
	for i := range entries {
		order = append(order, i)
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(entries[a].Key, entries[b].Key) })
	return order
}

// value writes one value under the name or path that is open.
func (s *stream) value(v any) {
	switch v := v.(type) {
	case nil:
		s.none()
	case []any:
		if !s.deeper() {
			return
		}
		s.sequence(len(v))
		for i := 0; i < len(v) && s.err == nil; i++ {
			mark := s.index(i)
			s.value(v[i])
			s.up(mark)
		}
		s.depth--
	case []Entry:
		if !s.deeper() {
			return
		}
		s.mapping(len(v))
		for i := 0; i < len(v) && s.err == nil; i++ {
			mark := s.key(v[i].Key)
			s.value(v[i].Value)
			s.up(mark)
		}
		s.depth--
	case bool:
		s.leafBool(v)
	case int:
		s.leafUint64(uint64(v))
	case int64:
		s.leafUint64(uint64(v))
	case uint64:
		s.leafUint64(v)
	case *big.Int:
		s.number(bigInt(v))
	case json.Number:
		s.number(jsonNumber(v))
	case float64:
		s.leafUint64(floatBits(v))
	case string:
		s.leafText(v)
	case []byte:
		s.leafBytes(v)
	case *Reader:
		if v == nil {
			s.fail(errInvalid, "it is a nil *Reader")
			return
		}
		s.leafData(nil, v)
	case Pickled:
		s.leafBytes(v)
	case *Array:
		s.array(v)
	case *Tensor:
		s.tensor(v)
	case *Image:
		s.image(v)
	case *EncodedImage:
		s.encodedImage(v)
	case *EncodedVideo:
		s.encodedVideo(v)
	default:
		s.refuse(v)
	}
}

// number writes an int64, a uint64 or a float64.
func (s *stream) number(v any, err error) {
	if err != nil {
		if s.err == nil {
			s.err = err
		}
		return
	}
	s.value(v)
}

func (s *stream) none() {
	switch {
	case s.rules.Framed:
		s.byte(tagNone)
	case s.rules.BareNone:
		s.leaf()
	default:
		s.leaf()
		s.rawString(pickledNone)
	}
}

func (s *stream) deeper() bool {
	if s.depth == maxDepth {
		s.fail(errInvalid, "lists and maps are nested more than %d deep", maxDepth)
		return false
	}
	s.depth++
	return true
}

func floatBits(v float64) uint64 {
	b := math.Float64bits(v)
	if b == math.Float64bits(math.NaN()) {
		return pythonNaN
	}
	return b
}
