package generate_test

import (
	"math"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/generate"
	"github.com/ringcache/ringcache/fuzz/model"
)

func newest(t *testing.T) *model.Ring {
	t.Helper()
	r, err := model.Lookup("0.33.0")
	require.NoError(t, err)
	return model.NewRing(r)
}

// borders counts the places that sequences have to reach, as the replies of the model show them.
type borders map[string]int

func (b borders) watch(m *model.Ring, op fuzz.Op, before model.FIFO, reply fuzz.Reply) {
	f := m.FIFO("r")
	n := len(f.Memory)
	seen := func(what string, yes bool) {
		if yes {
			b[what]++
		}
	}
	number := func(name string) int64 { x, _ := reply.Fields[name].(int64); return x }
	switch op.Name {
	case "ring.alloc":
		size := op.Args["size"].(int)
		seen("size 0 or less", size <= 0)
		seen("size near 2^31 or 2^63", size >= math.MaxInt32-8)
		seen("larger than the ring", size > n)
		seen("full", reply.Kind == "full" && size <= n)
		if reply.Kind != "" {
			seen("one byte too much", before.End-before.Start+size+8 == n+1)
			break
		}
		seen("ends at the end of the memory", f.End%n == 0)
		seen("ends at the oldest chunk", f.End-f.Start == n)
		seen("wraps", before.End/n < f.End/n && f.End%n != 0)
		seen("all of the memory", size+8 == n)
		seen("first id after the wrap", before.IDEnd == math.MaxInt32)
	case "ring.free":
		freed := reply.Fields["freed"].([]any)
		seen("frees nothing", len(freed) == 0)
		seen("frees several", len(freed) > 1)
		seen("back to 0", len(freed) > 0 && f.End == 0 && before.End != 0)
		seen("rebased", f.End < before.End && f.End != 0)
		_, limited := op.Args["limit"]
		seen("stopped by a limit", limited && len(freed) > 0 && f.IDStart != f.IDEnd)
	case "ring.clear":
		seen("clears live chunks", before.IDStart != before.IDEnd)
	case "ring.header":
		id := strconv.FormatInt(number("id"), 10)
		at, live := op.Args["address"].(int64)
		_, alive := f.Live[uint32(number("id"))]
		seen("header of a live chunk", reply.Kind == "" && live && alive && at >= 0)
		seen("header of a freed chunk", reply.Kind == "" && live && !alive)
		seen("no header", reply.Kind == "corrupt" && id != "")
	}
}

func TestRingReachesTheBorders(t *testing.T) {
	for _, version := range []string{"", "0.31.0", "0.11.0"} {
		t.Run("generation "+version, func(t *testing.T) {
			b := borders{}
			gen := generate.Ring(generate.RingOptions{Generation: version})
			for seed := range uint64(300) {
				ops := gen(fuzz.FromSeed(seed), 120)
				require.LessOrEqual(t, len(ops), 120)
				m := newest(t)
				replies := map[int]fuzz.Reply{}
				for _, op := range ops {
					op = op.Resolve(replies)
					before := model.FIFO{}
					if f := m.FIFO("r"); f != nil {
						before = *f
					}
					r, err := m.Do([]fuzz.Op{op})
					require.NoError(t, err)
					replies[op.ID] = r[0]
					if op.Name != "ring.new" && op.Name != "ring.close" {
						b.watch(m, op, before, r[0])
					}
				}
			}
			want := []string{
				"size 0 or less", "size near 2^31 or 2^63", "larger than the ring", "full", "one byte too much",
				"ends at the end of the memory",
				"ends at the oldest chunk", "wraps", "all of the memory", "first id after the wrap", "frees nothing",
				"frees several", "back to 0",
				"rebased", "stopped by a limit", "clears live chunks", "header of a live chunk",
				"header of a freed chunk", "no header",
			}
			for _, what := range want {
				if version == "0.11.0" && what == "back to 0" {
					continue // that release has no reset
				}
				require.Greater(t, b[what], 20, what)
			}
			t.Log(b)
		})
	}
}

func TestRingIsAFunctionOfTheChoices(t *testing.T) {
	gen := generate.Ring(generate.RingOptions{})
	require.Equal(t, gen(fuzz.FromSeed(3), 100), gen(fuzz.FromSeed(3), 100))
	require.NotEqual(t, gen(fuzz.FromSeed(3), 100), gen(fuzz.FromSeed(4), 100))
	require.Len(t, gen(fuzz.FromBytes(nil), 100), 1, "without choices there is a ring and nothing else")
	ops, err := fuzz.Parse(fuzz.Format(gen(fuzz.FromSeed(3), 100)))
	require.NoError(t, err)
	require.Len(t, ops, 100)
}

func TestRingOptionsLeaveOut(t *testing.T) {
	count := func(o generate.RingOptions, match func(op fuzz.Op) bool) (n int) {
		for seed := range uint64(50) {
			for _, op := range generate.Ring(o)(fuzz.FromSeed(seed), 100) {
				if match(op) {
					n++
				}
			}
		}
		return n
	}
	header := func(op fuzz.Op) bool { return op.Name == "ring.header" }
	forged := func(op fuzz.Op) bool { _, ref := op.Args["address"].(fuzz.Ref); return header(op) && !ref }
	limit := func(op fuzz.Op) bool { return op.Args["limit"] != nil }
	size := func(op fuzz.Op) bool { return op.Name == "ring.new" && op.Args["size"] == 77 }
	for what, match := range map[string]func(fuzz.Op) bool{"header": header, "forged": forged, "limit": limit} {
		require.Positive(t, count(generate.RingOptions{AnyOrder: true}, match), what)
	}
	require.Zero(t, count(generate.RingOptions{NoHeaders: true}, header))
	require.Zero(t, count(generate.RingOptions{LiveHeaders: true}, forged))
	require.Positive(t, count(generate.RingOptions{LiveHeaders: true}, header))
	require.Zero(t, count(generate.RingOptions{NoLimits: true}, limit))
	require.GreaterOrEqual(t, count(generate.RingOptions{Size: 77}, size), 50)
}
