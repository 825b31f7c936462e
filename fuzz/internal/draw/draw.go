// Package draw makes the choices of a generator by rapid, for the state machines of
// ringtest, storetest and lrutest.
package draw

import (
	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/fuzz"
)

// Choices returns choices that rapid makes and minimizes.
func Choices(t *rapid.T) *fuzz.Choices {
	return fuzz.NewChoices(func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "choice") }, nil)
}
