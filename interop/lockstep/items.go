package main

import (
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/serde"
)

// recipe determines all of an item's data, so that only it travels
// and each side makes the item by itself. Every tensor of it is full of Stamp.
type recipe struct {
	Stamp, Words int64
	Kind         int64
}

func words(n int64) *serde.Tensor {
	return &serde.Tensor{DType: "int64", Shape: []int{int(n)}}
}

// size is what the item counts for. Kinds differ in the Python objects that
// they hold beside tensors.
func (r recipe) size(p lrusync.Python) (int64, error) {
	elems := []serde.Elem{{Key: "pixel_values", Data: words(r.Words)}}
	switch r.Kind {
	case 1:
		elems = append(elems, serde.Elem{Key: "number", Data: r.Stamp})
	case 2:
		elems[0].Data = []any{words(r.Words / 2), words(r.Words - r.Words/2)}
	case 3:
		elems = append(elems, serde.Elem{Key: "scale", Data: float64(0.5)}, serde.Elem{Key: "mask"},
			serde.Elem{Key: "flags", Data: []any{true, false, int64(0)}})
	}
	return lrusync.ItemSize(&serde.Item{Elems: elems}, p)
}

// Items of the world that requests are made of. It does not fit the caches by
// far, but half of all uses are of few items.
const (
	worldItems   = 150
	popularItems = 12
)

var modalities = []string{"image", "video", "audio"}

// newRecipe makes the data of an item. Another version of it has another stamp
// and, mostly, another size.
func newRecipe(number, version int, capacity float64) recipe {
	rng := rand.New(rand.NewPCG(uint64(number), uint64(version)))
	r := recipe{Stamp: int64(number)<<20 | int64(version), Kind: rng.Int64N(4)}
	switch {
	case number%37 == 36: // never fits
		r.Words = int64(capacity)/8 + 1 + rng.Int64N(500)
	case number%8 == 7: // a few of these in one request don't fit together
		r.Words = int64(capacity) / 8 / 5 * (1 + rng.Int64N(3))
	default:
		r.Words = 2 + rng.Int64N(500)
	}
	return r
}

// use is one item of a request, in the order of the prompt.
type use struct {
	number   int
	modality string
	position int
	have     bool // its data is at hand
}

func (u use) key() string { return "k" + strconv.Itoa(u.number) }

func randomUses(rng *rand.Rand) []use {
	uses := make([]use, 1+rng.IntN(5))
	position := 0
	for i := range uses {
		position += 1 + rng.IntN(9)
		n := worldItems
		if rng.IntN(2) == 0 {
			n = popularItems
		}
		uses[i] = use{rng.IntN(n), modalities[rng.IntN(3)], position, rng.IntN(3) > 0}
		if i > 0 && rng.IntN(16) == 0 { // twice in one prompt
			uses[i].number = uses[rng.IntN(i)].number
		}
	}
	return uses
}

// visitingOrder returns in which order a sender goes through the items.
func visitingOrder(uses []use, byModality bool) []int {
	order := make([]int, len(uses))
	for i := range order {
		order[i] = i
	}
	if byModality {
		slices.SortStableFunc(order, func(a, b int) int {
			return slices.Index(modalities, uses[a].modality) - slices.Index(modalities, uses[b].modality)
		})
	}
	return order
}
