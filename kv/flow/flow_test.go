package flow_test

import (
	"bytes"
	"errors"
	"io/fs"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/flowreplay"
	"github.com/ringcache/ringcache/kv/flow"
)

// TestGoldenFlows replays what the connector of LMCache made of random flows.
func TestGoldenFlows(t *testing.T) {
	text, err := os.ReadFile("testdata/flows.jsonl")
	require.NoError(t, err)
	calls := 0
	for i, line := range bytes.Split(bytes.TrimSpace(text), []byte("\n")) {
		n, err := flowreplay.Check(line)
		require.NoError(t, err, "flow %d", i)
		calls += n
	}
	require.Greater(t, calls, 300)
}

// found is a look-up that finds n tokens.
func found(n int) flow.Lookup {
	return func(string, []int64, string) (int, error) { return n, nil }
}

func newScheduler(t *testing.T, o flow.Options, l flow.Lookup) *flow.Scheduler {
	t.Helper()
	s, err := flow.NewScheduler(o, l)
	require.NoError(t, err)
	return s
}

func request(id string, n int) flow.Request {
	r := flow.Request{ID: id, Tokens: make([]int64, n), PromptTokens: n}
	for i := range r.Tokens {
		r.Tokens[i] = int64(i)
	}
	return r
}

// TestCappedLoadEndsAtAChunk: LMCache returns 8 here, and asserts 6 then, which ends the engine.
func TestCappedLoadEndsAtAChunk(t *testing.T) {
	s := newScheduler(t, flow.Options{BlockTokens: 2, ChunkTokens: 4, MaxTokensPerLoad: 9}, found(24))
	r := request("r", 30)
	n, err := s.Matched(r, 2)
	require.NoError(t, err)
	require.Equal(t, 6, n, "up to token 8")
	require.NoError(t, s.Allocated(r, n))
	metas, err := s.Build([]flow.Scheduled{
		{ID: "r", Tokens: r.Tokens, Computed: 8, Count: 22, Blocks: make([]int64, 15)},
	}, nil)
	require.NoError(t, err)
	require.Equal(t, &flow.LoadSpec{EngineTokens: 2, CacheTokens: 8, CanLoad: true}, metas[0].Load)
	require.Equal(t, flow.SaveSpec{SkipTokens: 8, CanSave: true}, metas[0].Save)
}

// TestCapBelowAChunk: nothing is loaded if no chunk may be.
func TestCapBelowAChunk(t *testing.T) {
	s := newScheduler(t, flow.Options{BlockTokens: 2, ChunkTokens: 4, MaxTokensPerLoad: 3}, found(24))
	r := request("r", 30)
	for _, computed := range []int{0, 6} {
		n, err := s.Matched(r, computed)
		require.NoError(t, err)
		require.Zero(t, n)
	}
}

// TestResumedRequestBelowMinRetrieve: what is stored is not loaded, so that it is computed, and does not
// count as computed. LMCache asserts otherwise.
func TestResumedRequestBelowMinRetrieve(t *testing.T) {
	s := newScheduler(t, flow.Options{BlockTokens: 2, ChunkTokens: 4, MinRetrieveTokens: 20}, found(8))
	r := request("r", 16)
	for _, resumed := range []bool{false, true} {
		n, err := s.Matched(r, 0)
		require.NoError(t, err)
		require.Zero(t, n)
		require.NoError(t, s.Allocated(r, n))
		step := []flow.Scheduled{
			{ID: "r", Tokens: r.Tokens, Count: 10, Blocks: []int64{1, 2, 3, 4, 5}, Resumed: resumed},
		}
		var metas []*flow.Meta
		if resumed {
			metas, err = s.Build(nil, step)
		} else {
			metas, err = s.Build(step, nil)
		}
		require.NoError(t, err)
		require.Len(t, metas, 1)
		require.Equal(t, r.Tokens[:8], metas[0].Tokens, "10 are computed")
		require.Equal(t, flow.SaveSpec{SkipTokens: 8}, metas[0].Save)
		_, ok := metas[0].ToLoad(4)
		require.False(t, ok)
	}
}

// TestTailsThatNoStepLoads: LMCache cuts what a step loads to whole chunks, but with the last part of the
// prompt, and its engine believes that it has the tail.
func TestTailsThatNoStepLoads(t *testing.T) {
	for _, c := range []struct {
		tokens, stored int
		discard        bool
		want           int
	}{{14, 14, false, 13}, {14, 14, true, 12}, {20, 14, false, 12}, {20, 16, true, 16}} {
		s := newScheduler(t,
			flow.Options{BlockTokens: 2, ChunkTokens: 4, DiscardPartialChunks: c.discard},
			found(c.stored))
		n, err := s.Matched(request("r", c.tokens), 0)
		require.NoError(t, err)
		require.Equal(t, c.want, n, "%+v", c)
	}
}

// TestLookupsThatFail: the engine computes all, and asks again when it comes back to the request.
func TestLookupsThatFail(t *testing.T) {
	broken := errors.New("broken")
	answers := []struct {
		n   int
		err error
	}{{0, broken}, {17, nil}, {-1, nil}, {0, flow.ErrPending}, {8, nil}}
	calls := 0
	s := newScheduler(t, flow.Options{BlockTokens: 2, ChunkTokens: 4}, func(string, []int64, string) (int, error) {
		calls++
		return answers[calls-1].n, answers[calls-1].err
	})
	r := request("r", 16)
	for _, want := range []error{broken, fs.ErrInvalid, fs.ErrInvalid, flow.ErrPending} {
		n, err := s.Matched(r, 0)
		require.ErrorIs(t, err, want)
		require.Zero(t, n)
	}
	for range 3 {
		n, err := s.Matched(r, 4)
		require.NoError(t, err)
		require.Equal(t, 4, n)
	}
	require.Equal(t, len(answers), calls, "what was found is kept until there are blocks")
}

// TestTooFewBlocks: a worker copies nothing to slots that are not there.
func TestTooFewBlocks(t *testing.T) {
	s := newScheduler(t, flow.Options{BlockTokens: 2, ChunkTokens: 4}, found(8))
	r := request("r", 16)
	n, err := s.Matched(r, 0)
	require.NoError(t, err)
	require.NoError(t, s.Allocated(r, n))
	metas, err := s.Build([]flow.Scheduled{
		{ID: "r", Tokens: r.Tokens, Computed: 8, Count: 8, Blocks: []int64{9, 4}},
	}, nil)
	require.NoError(t, err)
	require.Equal(t, []int64{18, 19, 8, 9}, metas[0].Slots)
	_, ok := metas[0].ToLoad(4)
	require.False(t, ok)
	_, ok = metas[0].ToSave(4)
	require.False(t, ok)
}

// TestRefusedCalls: what LMCache asserts is an error that names the request.
func TestRefusedCalls(t *testing.T) {
	options := flow.Options{BlockTokens: 2, ChunkTokens: 4}
	good := request("good", 8)
	step := func(n, computed int) []flow.Scheduled {
		return []flow.Scheduled{{ID: "good", Tokens: good.Tokens[:n], Computed: computed, Count: 1}}
	}
	for name, call := range map[string]func(s *flow.Scheduler) error{
		"prompt": func(s *flow.Scheduler) error {
			_, err := s.Matched(flow.Request{ID: "good", PromptTokens: 1}, 0)
			return err
		},
		"computed": func(s *flow.Scheduler) error { _, err := s.Matched(good, -1); return err },
		"media": func(s *flow.Scheduler) error {
			r := good
			r.Media = []flow.Media{{Offset: -1}}
			_, err := s.Matched(r, 0)
			return err
		},
		"long": func(s *flow.Scheduler) error {
			r := good
			r.Media = []flow.Media{{Length: 1 << 40}}
			return s.Allocated(r, 0)
		},
		"options": func(s *flow.Scheduler) error {
			r := good
			r.Options = "{"
			_, err := s.Matched(r, 0)
			return err
		},
		"too few":   func(s *flow.Scheduler) error { _, _ = s.Matched(good, 0); return s.Allocated(good, 3) },
		"no blocks": func(s *flow.Scheduler) error { _, err := s.Build(step(8, 0), nil); return err },
		"not known": func(s *flow.Scheduler) error { _, err := s.Build(nil, step(8, 0)); return err },
		"behind": func(s *flow.Scheduler) error {
			_ = s.Allocated(good, 0)
			_, err := s.Build(step(4, 5), nil)
			return err
		},
		"shorter": func(s *flow.Scheduler) error {
			_ = s.Allocated(good, 0)
			_, err := s.Build(step(4, 0), nil)
			return err
		},
		"not looked up": func(s *flow.Scheduler) error {
			_ = s.Allocated(good, 0)
			if _, err := s.Build(step(8, 0), nil); err != nil {
				return nil // not this one
			}
			again := step(8, 0)
			again[0].Resumed = true
			_, err := s.Build(nil, again)
			return err
		},
		"elsewhere": func(s *flow.Scheduler) error {
			_ = s.Allocated(good, 0)
			if _, err := s.Build(step(8, 0), nil); err != nil {
				return nil
			}
			n, _ := s.Matched(good, 0)
			_ = s.Allocated(good, n)
			again := step(8, 5)
			again[0].Resumed = true
			_, err := s.Build(nil, again)
			return err
		},
	} {
		err := call(newScheduler(t, options, found(4)))
		require.ErrorIs(t, err, fs.ErrInvalid, name)
		require.ErrorContains(t, err, map[bool]string{true: "options", false: "good"}[name == "options"], name)
	}
	for _, o := range []flow.Options{
		{}, {BlockTokens: 1 << 30},
		{BlockTokens: 1, ChunkTokens: -1}, {BlockTokens: 1, SkipLastTokens: -1},
	} {
		_, err := flow.NewScheduler(o, found(0))
		require.ErrorIs(t, err, fs.ErrInvalid, "%+v", o)
	}
	_, err := flow.NewScheduler(options, nil)
	require.ErrorIs(t, err, fs.ErrInvalid, "without a look-up")
	_, err = flow.NewTracker(good, nil, -1, 0, false)
	require.ErrorIs(t, err, fs.ErrInvalid)
}

// TestMetaIsTheCallersOwn: who changes it does not change the request.
func TestMetaIsTheCallersOwn(t *testing.T) {
	r := request("r", 8)
	tracker, err := flow.NewTracker(r, []int64{1, 2}, 8, 0, false)
	require.NoError(t, err)
	m, err := tracker.Meta(flow.Options{BlockTokens: 4, ChunkTokens: 4}, nil)
	require.NoError(t, err)
	m.Tokens[0], m.Slots[0] = 99, 99
	require.Equal(t, request("r", 8).Tokens, tracker.Tokens)
	require.Equal(t, []int64{1, 2}, tracker.Blocks)
	require.Equal(t, int64(0), r.Tokens[0])
}

// TestRequestThatDoesNotFitCostsNoOther: the loads and saves of the others in its step are not lost, which the engine
// would take for done.
func TestRequestThatDoesNotFitCostsNoOther(t *testing.T) {
	s := newScheduler(t, flow.Options{BlockTokens: 4, ChunkTokens: 4}, found(4))
	r := request("r", 8)
	n, err := s.Matched(r, 0)
	require.NoError(t, err)
	require.NoError(t, s.Allocated(r, n))
	step := flow.Scheduled{ID: "r", Tokens: r.Tokens, Computed: 4, Count: 4, Blocks: []int64{1, 2}}
	stranger := flow.Scheduled{ID: "stranger", Tokens: r.Tokens, Count: 4}
	metas, err := s.Build([]flow.Scheduled{stranger, step}, []flow.Scheduled{stranger})
	require.ErrorIs(t, err, fs.ErrInvalid)
	require.ErrorContains(t, err, "stranger")
	require.Len(t, metas, 1)
	load, ok := metas[0].ToLoad(4)
	require.True(t, ok)
	require.Equal(t, r.Tokens[:4], load.Tokens)
	save, ok := metas[0].ToSave(4)
	require.True(t, ok)
	require.Equal(t, 4, save.Skip)
}

// TestCountsThatOverflow: a step of so many tokens is refused, and was a panic.
func TestCountsThatOverflow(t *testing.T) {
	s := newScheduler(t, flow.Options{BlockTokens: 4, ChunkTokens: 4}, found(0))
	r := request("r", 8)
	require.NoError(t, s.Allocated(r, 0))
	step := []flow.Scheduled{{ID: "r", Tokens: r.Tokens, Count: 4, Blocks: []int64{1, 2}}}
	_, err := s.Build(step, nil)
	require.NoError(t, err)
	step[0].Computed, step[0].Count = 4, math.MaxInt
	_, err = s.Build(nil, step)
	require.ErrorIs(t, err, fs.ErrInvalid)
}
