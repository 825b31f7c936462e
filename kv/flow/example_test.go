package flow_test

import (
	"fmt"

	"github.com/ringcache/ringcache/kv/flow"
)

// A request of 10 tokens, of which 4 are stored; blocks have 2 tokens, and chunks 4.
func Example() {
	s, err := flow.NewScheduler(flow.Options{BlockTokens: 2, ChunkTokens: 4, DiscardPartialChunks: true},
		func(_ string, tokens []int64, _ string) (int, error) { return 4, nil })
	if err != nil {
		fmt.Println(err)
		return
	}
	r := flow.Request{ID: "r", Tokens: []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, PromptTokens: 10}
	n, err := s.Matched(r, 0)
	fmt.Println(n, "tokens can be loaded", err)
	if err := s.Allocated(r, n); err != nil {
		fmt.Println(err)
		return
	}
	metas, err := s.Build([]flow.Scheduled{
		{ID: "r", Tokens: r.Tokens, Computed: n, Count: 6, Blocks: []int64{7, 3, 5, 1, 8}},
	}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	load, _ := metas[0].ToLoad(4)
	save, _ := metas[0].ToSave(4)
	fmt.Println("load", load.Tokens[load.Skip:], "to", load.Slots[load.Skip:])
	fmt.Println("save", save.Tokens[save.Skip:], "from", save.Slots[save.Skip:])
	fmt.Println(s.Finish("r"), "tokens were stored")
	// Output:
	// 4 tokens can be loaded <nil>
	// load [1 2 3 4] to [14 15 6 7]
	// save [5 6 7 8] from [10 11 2 3]
	// 4 tokens were stored
}
