package generate

import (
	"fmt"

	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/model"
)

// cacheScript is a sequence of operations on caches that is being made. A model performs each
// at once, so that the next one can aim at the borders of what is there.
type cacheScript struct {
	*fuzz.Choices
	model  fuzz.System
	ops    []fuzz.Op
	length int
}

func (s *cacheScript) full() bool { return len(s.ops) >= s.length || !s.More() }

// do appends an operation and returns the model's reply. What vLLM would never return from is
// not appended.
func (s *cacheScript) do(name string, args map[string]any) fuzz.Reply {
	op := fuzz.Op{Name: name, Args: args}
	replies, err := s.model.Do([]fuzz.Op{op})
	if err != nil {
		panic(fmt.Sprintf("generate: %s: %v", op.Line(), err)) // only this package can be wrong
	}
	if replies[0].Kind != "hang" {
		s.ops = append(s.ops, op)
	}
	return replies[0]
}

// key returns one of few names, so that they meet often.
func (s *cacheScript) key() string { return string(rune('a' + s.Int(8))) }

// capacity returns the one asked for, or any small one.
func (s *cacheScript) capacity(asked float64) float64 {
	if asked != 0 {
		return asked
	}
	return fuzz.Pick(s.Choices, 10.0, 20, 10.5, 33, 40, 7.25, 64, 1, 0)
}

// newestRelease stands in for no release.
func newestRelease(r model.Release) model.Release {
	if r.Version == "" {
		r, _ = model.Lookup("0.33.0")
	}
	return r
}
