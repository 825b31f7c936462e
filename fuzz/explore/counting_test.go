package explore_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/explore"
)

// Two requests for one new image, close together, with two readers: vLLM 0.12 to 0.31 loses a
// count. Both readers have to skip one touch; here three are skipped, as A reads the first
// time before B does.
func Example_countingDrift() {
	fmt.Println(explore.Explore(explore.Options{},
		protocol{counting: c1, readers: 2, requests: []request{plain, plain}}.program).Failure)
	// Output:
	// never-free: every reader has read every handle, but R = 5 stays below W x readers = 6
	// why it matters: the chunk is never freed, and in a FIFO nothing behind it is
	// step  process   does                                       state afterwards
	//    1  writer    put, request 1: W = 1                      W=1 R=0
	//    2  writer    send request 1                             W=1 R=0
	//    3  writer    touch, request 2                           W=2 R=0
	//    4  writer    get_cached, request 2                      W=3 R=0
	//    5  writer    send request 2                             W=3 R=0
	//    6  reader A  touch, request 1 -> R < 2, does not count  W=3 R=0
	//    7  reader A  get, request 1: R += 1                     W=3 R=1
	//    8  reader A  touch, request 2 -> R < 2, does not count  W=3 R=1
	//    9  reader B  touch, request 1 -> R < 2, does not count  W=3 R=1
	//   10  reader A  get, request 2: R += 1                     W=3 R=2
	//   11  reader B  get, request 1: R += 1                     W=3 R=3
	//   12  reader B  touch, request 2 -> counts                 W=3 R=4
	//   13  reader B  get, request 2: R += 1                     W=3 R=5
}

func TestUpstreamCountingDrift(t *testing.T) {
	two := []request{plain, plain}
	resumed := []request{fannedOut, plain}
	for _, c := range []struct {
		protocol
		what, failure string
	}{
		{protocol{counting: c0, readers: 2, requests: two}, "two requests", ""},
		{protocol{counting: c0, readers: 3, requests: two}, "two requests", ""},
		// one reader alone can't drift
		{protocol{counting: c1, readers: 1, requests: []request{plain, plain, plain}}, "three requests", ""},
		{protocol{counting: c1, readers: 2, requests: two}, "two requests", "never-free"},
		{protocol{counting: c1, readers: 2, requests: []request{{children: 1, twice: true}}}, "the image twice",
			"premature-free"},
		{protocol{counting: c2, readers: 2, requests: two}, "two requests", ""},
		{protocol{counting: c2, readers: 3, requests: two}, "two requests", ""},
		{protocol{counting: c2, readers: 2, requests: []request{plain, plain, plain}}, "three requests", ""},
		{protocol{counting: c2, readers: 2, requests: []request{{children: 1, twice: true}, plain}},
			"the image twice", ""},
		{protocol{counting: c0, readers: 2, requests: resumed}, "n > 1 or resumed", "premature-free"},
		{protocol{counting: c2, readers: 2, requests: resumed}, "n > 1 or resumed", "premature-free"},
		// Ours: leases hold, whatever the counts are. With a use for each child they agree, too.
		{protocol{counting: fifo, readers: 2, requests: two}, "two requests", ""},
		{protocol{counting: fifo, readers: 2, requests: resumed}, "resumed", ""},
		{protocol{counting: fifo, readers: 2, requests: []request{{children: 2, uses: 2}, plain}}, "n > 1", ""},
		{protocol{counting: pool, readers: 3, requests: two}, "two requests", ""},
		{protocol{counting: pool, readers: 2, requests: resumed}, "n > 1 or resumed", ""},
	} {
		t.Run(fmt.Sprintf("%s, %d readers, %s", c.name, c.readers, c.what), func(t *testing.T) {
			res := explore.Explore(explore.Options{}, c.program)
			t.Log(res)
			if c.failure == "" {
				require.Nil(t, res.Failure)
				require.True(t, res.Complete)
				return
			}
			require.NotNil(t, res.Failure)
			require.Equal(t, c.failure, res.Failure.Name)
		})
	}
}

// TestCountsThatUpstreamCanEndWith: what docs/hazards.md reports of real runs is all that
// there is.
func TestCountsThatUpstreamCanEndWith(t *testing.T) {
	for _, c := range []struct {
		readers  int
		requests []request
		ends     map[int]bool
		long     bool
	}{
		{1, []request{plain, plain, plain}, map[int]bool{5: true}, false},
		{2, []request{plain, plain}, map[int]bool{5: true, 6: true}, false},
		{2, []request{plain, plain, plain}, map[int]bool{9: true, 10: true}, true},
		{3, []request{plain, plain}, map[int]bool{7: true, 8: true, 9: true}, true},
		{2, []request{{children: 1, twice: true}}, map[int]bool{4: true, 5: true, 6: true}, false},
	} {
		if c.long && !*long {
			continue
		}
		ends := map[int]bool{}
		res := explore.Explore(explore.Options{},
			protocol{counting: c1, readers: c.readers, requests: c.requests, ends: ends}.program)
		t.Logf("%d readers, %d requests: %s; R ends as %v", c.readers, len(c.requests), res, ends)
		require.True(t, res.Complete)
		require.Equal(t, c.ends, ends)
	}
}
