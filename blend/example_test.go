package blend_test

import (
	"fmt"

	"github.com/ringcache/ringcache/blend"
	"github.com/ringcache/ringcache/blend/rope"
	"github.com/ringcache/ringcache/kv"
)

// Chunks of one length are found wherever they stand, and the plan computes what lies between them in every layer.
func Example() {
	index, err := blend.NewIndex(kv.Scheme{ChunkTokens: 4})
	if err != nil {
		panic(err)
	}
	document := []int64{11, 12, 13, 14, 15, 16, 17, 18}
	if _, err := index.Add(document); err != nil {
		panic(err)
	}
	prompt := append([]int64{1, 2}, document...)
	prompt = append(prompt, 3)
	matches, err := index.Find(prompt)
	if err != nil {
		panic(err)
	}
	cover := blend.Optimal(matches)
	for _, m := range cover {
		fmt.Println("chunk", m.Start, m.End)
	}
	fmt.Println("gaps", blend.Gaps(cover, len(prompt)))

	plan, err := blend.NewPlan(blend.PlanOptions{
		Layers: 3, Tokens: len(prompt), Cover: cover,
		Checks: []blend.Check{{Layer: 1, Selection: blend.Selection{Ratio: 0.4}}},
	})
	if err != nil {
		panic(err)
	}
	for range 3 {
		step, err := plan.Step()
		if err != nil {
			panic(err)
		}
		if step.Check {
			// Deviation returns these, of what was computed and what was moved.
			if step, err = plan.Select([]float64{0, 0, 0.1, 0.2, 0.9, 0.1, 0, 0, 0, 0, 0}); err != nil {
				panic(err)
			}
		}
		fmt.Println("layer", step.Layer, step.Attend)
	}
	// Output:
	// chunk 2 6
	// chunk 6 10
	// gaps [{0 2} {10 11}]
	// layer 0 [0 1 2 3 4 5 6 7 8 9 10]
	// layer 1 [0 1 4 10]
	// layer 2 [0 1 4 10]
}

// Segments between separators are LMCache's way: the separators are gaps.
func ExampleGaps() {
	hasher, err := kv.NewHasher(kv.Scheme{Algorithm: kv.SHA256CBOR, Legacy: true})
	if err != nil {
		panic(err)
	}
	segments, err := kv.NewSegmentDatabase(hasher, kv.EngineKey{Model: "m", World: 1, DType: "bfloat16"}, []int64{7, 7})
	if err != nil {
		panic(err)
	}
	prompt := []int64{1, 2, 3, 7, 7, 4, 5, 7, 7, 6}
	chunks, err := segments.Chunks(prompt, 0, nil)
	if err != nil {
		panic(err)
	}
	known := map[string]bool{chunks[0].Key.Hash: true, chunks[1].Key.Hash: true} // the question is new
	var cover []blend.Match
	for _, c := range chunks {
		if known[c.Key.Hash] {
			cover = append(cover, blend.Match{Start: c.Start, End: c.End, Name: c.Key.Hash})
		}
	}
	fmt.Println(blend.Gaps(cover, len(prompt)))
	// Output: [{3 5} {7 10}]
}

// Keys that were computed at position 0 are moved to position 100.
func ExampleMove() {
	table, err := rope.New(rope.Config{HeadDim: 64})
	if err != nil {
		panic(err)
	}
	shape := blend.Shape{Layers: 2, Heads: 4, HeadDim: 64, DType: rope.BF16}
	chunk, err := blend.New(shape, 16)
	if err != nil {
		panic(err)
	}
	prompt, err := blend.New(shape, 200)
	if err != nil {
		panic(err)
	}
	move, err := blend.NewMove(table, prompt, 100, blend.Chunk{KV: chunk})
	if err != nil {
		panic(err)
	}
	fmt.Println(blend.MoveAll([]*blend.Move{move}, 0))
	// Output: <nil>
}
