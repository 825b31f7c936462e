package resp

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/redistest"
)

var commandsFlag = flag.Int("redis.commands", 5000, "commands that are sent to this server and to a real one")

// TestAnswersAreRedis: random commands get the bytes that a real redis-server answers, but for the texts of errors. One
// connection to each goes through all of them, and a second one looks on.
func TestAnswersAreRedis(t *testing.T) {
	redis := redistest.Start(t)
	b := newBed(t, 0, true, nil)
	r := rand.New(rand.NewPCG(7, uint64(*commandsFlag)))
	ours, theirs := []*peer{b.dial(), b.dial()}, []*peer{dial(t, redis.Addr()), dial(t, redis.Addr())}
	for _, p := range append(ours[:2:2], theirs...) {
		require.Equal(t, "+PONG\r\n", p.do("PING")) // so that no answer is made for LMCache's native client
	}
	kinds, errs := map[string]int{}, 0
	for i := range *commandsFlag {
		cmd := drawCommand(r)
		who := r.IntN(2)
		here, there := ours[who].do(cmd...), theirs[who].do(cmd...)
		if strings.HasPrefix(there, "-") {
			errs++
			there, here = firstWord(there), firstWord(here)
		}
		if here != there {
			t.Fatalf("command %d, %.200q: here %.200q, Redis %.200q", i, cmd, here, there)
		}
		kinds[cmd[0]]++
	}
	t.Logf("%d commands, %d errors: %v", *commandsFlag, errs, kinds)
	require.Positive(t, errs)
	require.Greater(t, len(kinds), 10)
}

func firstWord(s string) string {
	word, _, _ := strings.Cut(s, " ")
	return word
}

// drawCommand draws a command that Redis and this server answer alike.
func drawCommand(r *rand.Rand) []string {
	key := func() string { return fmt.Sprintf("model@1@0@%x@half", r.IntN(20)) }
	several := func(name string) []string {
		cmd := []string{name}
		for range 1 + r.IntN(4) {
			cmd = append(cmd, key())
		}
		return cmd
	}
	switch n := r.IntN(100); {
	case n < 30:
		size := []int{0, 1, 5, 100, 4096, 16 << 10, 70_000, 1 << 20}[r.IntN(8)]
		if r.IntN(2) == 0 {
			size = r.IntN(30_000)
		}
		value := randomText(r, 16)
		if r.IntN(2) == 0 { // often the same
			value = fmt.Sprintf("%016d", r.IntN(2))
		}
		return []string{"SET", key(), strings.Repeat(value, size/16+1)[:size]}
	case n < 50:
		return []string{"GET", key()}
	case n < 65:
		return several("EXISTS")
	case n < 72:
		return several("DEL")
	case n < 75:
		return several("UNLINK")
	case n < 82:
		return several("MGET")
	case n < 87:
		return []string{"STRLEN", key()}
	case n < 90:
		return []string{"ECHO", randomText(r, r.IntN(100))}
	case n < 93:
		return [][]string{{"SELECT", "0"}, {"SELECT", "99"}, {"SELECT", "x"}}[r.IntN(3)]
	case n < 96:
		return [][]string{
			{"CLIENT", "SETNAME", "me"}, {"CLIENT", "GETNAME"}, {"CLIENT", "SETNAME", "a b"},
			{"CLIENT", "NO-EVICT", "on"},
		}[r.IntN(4)]
	case n < 97:
		return []string{"FLUSHDB"}
	default:
		return [][]string{{"GET"}, {"SET", "k"}, {"NONE", "a"}, {"EXISTS"}, {"GET", "a", "b"}, {"ECHO"}}[r.IntN(6)]
	}
}
