package generate

import (
	"strconv"
	"strings"

	"github.com/ringcache/ringcache/fuzz"
)

// doubtful reads with a handle that may be stale, or is forged.
func (s *stores) doubtful() {
	h, ok := s.one(s.issued)
	if !ok {
		return
	}
	args := s.handle(h)
	switch s.Int(10) {
	case 0, 1, 2: // as it is: stale if its object is gone
	case 3:
		args["id"] = fuzz.Pick[any](s.Choices, noID, 0, 1, 1<<31-1, 1<<31, len(s.ops))
	case 4:
		args["address"] = fuzz.Pick[any](s.Choices, 0, 1, s.size-1, s.size-8, s.size, 2*s.size, int64(1)<<40)
		args["id"] = noID // bytes that are no header might be those of a smaller one
	case 5: // that of another object
		other, _ := s.one(s.issued)
		args["address"] = fuzz.Ref{Op: other.op, Field: "address", Else: 0}
	case 6:
		args["key"] = s.key()
	default:
		if s.release.Signed {
			other, _ := s.one(s.issued)
			args["signature"] = fuzz.Pick[any](s.Choices, nil, "", strings.Repeat("00", 32), bytesOf(32), bytesOf(31),
				fuzz.Ref{Op: other.op, Field: "signature"})
		}
	}
	who := "r" + strconv.Itoa(s.Int(s.readers))
	switch n := s.Int(10); {
	case n < 4:
		s.add("store.get", who, args)
	case n < 6 && s.release.Touch && (s.release.Counting == 2 || s.pool):
		s.add("store.touch", who, args)
	case n < 7 && s.release.Signed:
		s.add("store.verify", fuzz.Pick(s.Choices, "w", who), args)
	case n < 8 && s.release.Signed:
		s.onKey("store.signature", h.key)
	case n < 9:
		delete(args, "signature") // vLLM's writer verifies none
		s.add("store.get", "w", args)
	default:
		delete(args, "key")
		s.add("store.get", who, args)
	}
}

func bytesOf(n int) []any {
	out := make([]any, n)
	for i := range out {
		out[i] = 7 * i % 256
	}
	return out
}
