package lookup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tinylib/msgp/msgp"
)

// A Request is a question: how many tokens of a request are stored, from the first one on. It has hashes, or tokens
// where LMCache blends.
type Request struct {
	ID      string
	Hashes  []string // of the chunks: numbers in hexadecimal digits, as kv.Hasher.Text returns them
	Lengths []int    // how many tokens each chunk has
	Tokens  []int64
	Options string // of the request, a JSON object or empty; kv.ParseTags reads the tags
}

const (
	// questionFrames are the frames of a question with hashes, and questionFrames-1 those with tokens.
	questionFrames = 5
	maxID          = 4096 // bytes
)

var errQuestion = errors.New("a question that can't be read")

// appendQuestion returns the frames of a question.
func appendQuestion(r Request, blending bool) ([][]byte, error) {
	frames := [][]byte{{}}
	if blending {
		b := msgp.AppendArrayHeader(nil, uint32(len(r.Tokens)))
		for _, t := range r.Tokens {
			b = appendInteger(b, t)
		}
		frames = append(frames, b)
	} else {
		hashes := msgp.AppendArrayHeader(nil, uint32(len(r.Hashes)))
		lengths := msgp.AppendArrayHeader(nil, uint32(len(r.Lengths)))
		for _, h := range r.Hashes {
			n, err := strconv.ParseUint(h, 16, 64)
			if err == nil {
				hashes = msgp.AppendUint64(hashes, n)
				continue
			}
			m, err := strconv.ParseInt(h, 16, 64)
			if err != nil {
				return nil, invalid("the hash %.40q: it is no number of 64 bits", h)
			}
			hashes = appendInteger(hashes, m)
		}
		for _, n := range r.Lengths {
			lengths = appendInteger(lengths, int64(n))
		}
		frames = append(frames, hashes, lengths)
	}
	return append(frames, msgp.AppendString(nil, r.ID), msgp.AppendString(nil, r.Options)), nil
}

// appendInteger writes a number as msgspec does.
func appendInteger(b []byte, n int64) []byte {
	if n >= 0 {
		return msgp.AppendUint64(b, uint64(n))
	}
	return msgp.AppendInt64(b, n)
}

// readQuestion reads the frames behind the empty one. It keeps no memory of them.
func readQuestion(frames [][]byte, blending bool) (Request, error) {
	var r Request
	want := questionFrames - 1
	if blending {
		want--
	}
	if len(frames) != want {
		return r, fmt.Errorf("%w: %d frames, not %d, with blending %t", errQuestion, len(frames), want, blending)
	}
	var err error
	if r.ID, err = readText(frames[want-2]); err == nil && len(r.ID) > maxID {
		err = fmt.Errorf("%w: an ID of %d bytes", errQuestion, len(r.ID))
	}
	if err != nil {
		return r, err
	}
	if r.Options, err = readText(frames[want-1]); err != nil {
		return r, err
	}
	if blending {
		r.Tokens, err = readList(frames[0], func(b []byte) (int64, []byte, error) { return msgp.ReadInt64Bytes(b) })
		return r, err
	}
	if r.Hashes, err = readList(frames[0], readHash); err != nil {
		return r, err
	}
	r.Lengths, err = readList(frames[1], func(b []byte) (int, []byte, error) {
		n, rest, err := msgp.ReadInt64Bytes(b)
		if err == nil && (n < 0 || n > math.MaxInt32) {
			err = fmt.Errorf("a chunk of %d tokens", n)
		}
		return int(n), rest, err
	})
	if err == nil && len(r.Lengths) != len(r.Hashes) {
		err = fmt.Errorf("%w: %d hashes and %d lengths of chunks", errQuestion, len(r.Hashes), len(r.Lengths))
	}
	return r, err
}

func readHash(b []byte) (string, []byte, error) {
	if n, rest, err := msgp.ReadUint64Bytes(b); err == nil {
		return strconv.FormatUint(n, 16), rest, nil
	}
	n, rest, err := msgp.ReadInt64Bytes(b)
	return strconv.FormatInt(n, 16), rest, err
}

// readList reads an array. Each element has a byte at least, so a header with more elements than bytes is refused.
func readList[E any](b []byte, element func(b []byte) (E, []byte, error)) ([]E, error) {
	n, rest, err := msgp.ReadArrayHeaderBytes(b)
	if err != nil || int64(n) > int64(len(rest)) {
		//nolint:errorlint // the kind of err says enough
		return nil, fmt.Errorf("%w: an array of %d elements in %d bytes (%v)", errQuestion, n, len(rest), err)
	}
	out := make([]E, 0, n)
	for range n {
		var e E
		if e, rest, err = element(rest); err != nil {
			return nil, fmt.Errorf("%w: %w", errQuestion, err)
		}
		out = append(out, e)
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("%w: %d bytes behind an array", errQuestion, len(rest))
	}
	return out, nil
}

// readText reads a text, which may come as bytes.
func readText(b []byte) (string, error) {
	text, rest, err := msgp.ReadStringAsBytes(b, nil)
	if err != nil {
		text, rest, err = msgp.ReadBytesZC(b)
	}
	if err != nil || len(rest) > 0 || !utf8.Valid(text) {
		//nolint:errorlint // the kind of err says enough
		return "", fmt.Errorf("%w: no text (%v), or %d bytes behind it", errQuestion, err, len(rest))
	}
	return strings.Clone(string(text)), nil
}

// answerSize is the size of an answer, in bytes.
const answerSize = 4

func appendAnswer(n int) [][]byte {
	return [][]byte{{}, binary.BigEndian.AppendUint32(nil, uint32(n))}
}

func readAnswer(frames [][]byte) (int, error) {
	if len(frames) != 2 || len(frames[0]) != 0 || len(frames[1]) != answerSize {
		return 0, fmt.Errorf(
			"lookup: an answer of %d frames; an empty one and one of %d bytes are expected",
			len(frames), answerSize)
	}
	return int(binary.BigEndian.Uint32(frames[1])), nil
}
