package harness

import (
	"fmt"
	"os"
	"strconv"

	"github.com/ringcache/ringcache/fuzz"
)

// Numbers from outside, for a failure that has to be seen again and for long runs.
const (
	seedVariable = "FUZZ_SEED"
	opsVariable  = "FUZZ_OPS"
)

// fromEnvironment replaces the seed and the number of operations by those of the environment.
func fromEnvironment(s fuzz.Search) (fuzz.Search, error) {
	seed, err := variable(seedVariable, s.Seed)
	if err != nil {
		return s, err
	}
	ops, err := variable(opsVariable, uint64(s.Ops))
	s.Seed, s.Ops = seed, int(ops)
	return s, err
}

func variable(name string, otherwise uint64) (uint64, error) {
	text := os.Getenv(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	return n, nil
}
