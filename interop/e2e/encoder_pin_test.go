//go:build e2e

package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEncoderPins: the scheduler has pinned images, and the worker has not yet
// loaded them. Meanwhile the server is killed, all of its memory is asked for by others, the objects are
// deleted, or all of its memory is lost.
func TestEncoderPins(t *testing.T) {
	s := newCacheServer(t, "--size", "1MiB", "--max-held", "1MiB")
	s.start()
	e := newEncoder(t, encoderSetup{role: "ec_both", extra: map[string]any{"space": space}}, s)
	names := numbered(0, 4)
	var identifiers []string
	for _, a := range e.does(5, 0, numbered(0, 5)...).Answers {
		identifiers = append(identifiers, a.Identifiers[0])
	}
	for _, what := range []struct {
		name   string
		killed bool
		happen func()
		stay   []bool // of the objects
	}{
		{"others", false, s.press, []bool{true, true, true, true, false}},
		{"killed", true, func() { s.gone(); s.start(); s.press() }, []bool{true, true, true, true, false}},
		{"deleted", false, func() { s.clear(); s.press() }, []bool{true, true, true, true, false}},
		{"lost", true, func() {
			s.gone()
			s.loseMemory()
			s.start()
			s.press()
		}, []bool{false, false, false, false, false}},
	} {
		e.right(numbered(0, 5)...)
		e.recovers(numbered(0, 5)...)
		e.forget()
		server := s
		if !what.killed {
			server = nil
		}
		h := e.hold(server)
		e.send(map[string]any{"ask": names})
		h.reached()
		what.happen()
		require.Equal(t, what.stay, s.has(identifiers...), what.name)
		h.goOn()
		a := e.check(e.answered(names...), names...)
		require.Equal(t, observed{Loads: 4}, a.Workers[0], what.name)
	}
	e.end()
	s.idle()
}

// TestEncoderScheduling: requests that are preempted and resumed, and aborted at any step, with the next step
// scheduled before one ends, and images within a prefix that the engine has. Nothing stays pinned.
func TestEncoderScheduling(t *testing.T) {
	s := newCacheServer(t)
	s.start()
	for _, flags := range [][]string{
		{"--set", "max_model_len=128", "--set", "block_size=32", "--set", "num_gpu_blocks_override=8"},
		{"--async-scheduling", "--set", "enable_prefix_caching=true", "--set", "block_size=32"},
	} {
		e := newEncoder(t, encoderSetup{role: "ec_both", flags: flags}, s)
		names := append(numbered(0, 6), "two0", "two1", "two2", "two3")
		e.right(names...)
		e.recovers(names...)
		alone := map[string][]uint32{}
		for _, name := range names {
			alone[name] = e.do(map[string]any{"ask": []string{name}, "params": long}).Answers[0].Tokens
			require.Equal(t, e.ref.named(t, name).Tokens, alone[name][:8])
		}
		for round := range 6 {
			e.forget()
			for i, a := range e.do(map[string]any{"ask": names, "params": long}).Answers {
				require.Equal(t, alone[names[i]], a.Tokens, names[i])
			}
			e.forget()
			e.do(map[string]any{"abort": names, "steps": round})
		}
		e.do(map[string]any{"reset": "prefix"})
		e.again(0, 7, append(numbered(0, 6), "two1", "two2")...) // only image10 is in no other one
		e.right("text0")
		require.Zero(t, s.pinned())
		e.end()
		s.idle()
	}
}

var long = map[string]any{"max_tokens": 60}
