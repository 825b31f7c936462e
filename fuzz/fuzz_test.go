package fuzz_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz"
)

// counter is a system whose op "add" returns the sum so far; above a limit it is wrong by one.
type counter struct{ sum, limit int }

func (c *counter) Do(ops []fuzz.Op) ([]fuzz.Reply, error) {
	var out []fuzz.Reply
	for _, op := range ops {
		switch op.Name {
		case "add":
			n := op.Args["n"].(int)
			if n < 0 {
				out = append(out, fuzz.Reply{Kind: "invalid", Text: "negative"})
				continue
			}
			if c.sum += n; c.sum > c.limit {
				c.sum++
			}
			out = append(out, fuzz.Reply{Fields: map[string]any{"sum": c.sum}})
		default:
			return out, errors.New("it broke")
		}
	}
	return out, nil
}

func (c *counter) Close() error { return nil }

func sums(op fuzz.Op, want, got fuzz.Reply) string {
	if want.Kind != got.Kind || !want.Equal(got, "sum") {
		return "another sum"
	}
	return ""
}

func generate(c *fuzz.Choices, length int) []fuzz.Op {
	var ops []fuzz.Op
	for i := range length {
		if !c.More() {
			break
		}
		ops = append(ops, fuzz.Op{ID: i + 1, Name: "add", Args: map[string]any{"n": c.Int(50)}})
	}
	return ops
}

func TestFindMinimizes(t *testing.T) {
	test := func(ops []fuzz.Op) *fuzz.Failure {
		d, err := fuzz.Compare(&counter{limit: 1 << 30}, &counter{limit: 300}, ops, sums)
		if err != nil || d != nil {
			return &fuzz.Failure{Invariant: "difference", Err: errors.Join(err, asError(d)), Ops: ops}
		}
		return nil
	}
	f, done := fuzz.Find(fuzz.Search{Seed: 7, Ops: 100000, Length: 30}, generate, test)
	require.NotNil(t, f)
	require.Positive(t, done)
	sum := 0
	for _, op := range f.Ops {
		sum += op.Args["n"].(int)
	}
	require.Equal(t, 301, sum, "no number can be lower")
	require.Less(t, len(f.Ops), 15, "without any one of them the sum stays below the limit")
	require.Equal(t, 30, f.Found)
	require.Contains(t, f.Error(), `{"op":"add","seq":`)

	f, done = fuzz.Find(fuzz.Search{Seed: 7, Ops: 500, Length: 5}, generate, test)
	require.Nil(t, f, "5 numbers below 50 stay below the limit")
	require.Equal(t, 500, done)
}

// Where numbers have to fit each other, one alone can't be lowered.
func TestMinimizeLowersNumbersTogether(t *testing.T) {
	op := func(name string, n int) fuzz.Op { return fuzz.Op{Name: name, Args: map[string]any{"n": n}} }
	fits := func(ops []fuzz.Op) bool {
		return len(ops) == 3 && ops[2].Args["n"].(int) >= 3 &&
			ops[0].Args["n"].(int) == ops[1].Args["n"].(int)+ops[2].Args["n"].(int)
	}
	least := fuzz.Minimize([]fuzz.Op{op("room", 121), op("chunk", 47), op("chunk", 74)}, fits)
	require.Equal(t, []fuzz.Op{op("room", 3), op("chunk", 0), op("chunk", 3)}, least)
}

func asError(d *fuzz.Difference) error {
	if d == nil {
		return nil
	}
	return d
}

func TestRunResolvesReferences(t *testing.T) {
	ops := []fuzz.Op{
		{ID: 1, Name: "add", Args: map[string]any{"n": 3}},
		{ID: 2, Name: "add", Args: map[string]any{"n": -1}},
		{Name: "add", Args: map[string]any{"n": fuzz.Ref{Op: 1, Field: "sum"}}},
		{Name: "add", Args: map[string]any{"n": fuzz.Ref{Op: 2, Field: "sum", Else: 10}}},
		{Name: "add", Args: map[string]any{"n": fuzz.Ref{Op: 9, Field: "sum", Else: 20}}},
	}
	resolved, replies, err := fuzz.Run(&counter{limit: 1000}, ops)
	require.NoError(t, err)
	require.Equal(t, "invalid", replies[1].Kind)
	require.Equal(t, 36, replies[4].Fields["sum"])
	require.JSONEq(t, `{"op":"add","n":3}`, resolved[2].Line())

	list := fuzz.Op{Name: "x", Args: map[string]any{"ids": []any{1, fuzz.Ref{Op: 9, Field: "id"}, nil}}}
	require.JSONEq(t, `{"op":"x","ids":[1,null]}`, list.Resolve(nil).Line())

	_, _, err = fuzz.Run(&counter{}, []fuzz.Op{{Name: "subtract"}})
	require.ErrorContains(t, err, "it broke")
	require.ErrorContains(t, err, `{"op":"subtract"}`)
}

func TestFormatAndParse(t *testing.T) {
	ops := []fuzz.Op{
		{ID: 3, Name: "ring.alloc", Args: map[string]any{"ring": "r", "size": int64(20)}},
		{Name: "ring.free", Args: map[string]any{"ids": []any{fuzz.Ref{Op: 3, Field: "id", Else: "<none>"}},
			"limit": nil}},
	}
	text := fuzz.Format(ops)
	require.Equal(t, []string{
		`{"op":"ring.alloc","seq":3,"ring":"r","size":20}`,
		`{"op":"ring.free","ids":[{"ref":[3,"id","<none>"]}],"limit":null}`, "",
	}, strings.Split(text, "\n"))
	back, err := fuzz.Parse("# a comment\n\n" + text)
	require.NoError(t, err)
	require.Equal(t, ops, back)

	for text, what := range map[string]string{
		`{"op":5}`: "line 1: the field op", `x`: "line 1 is no operation", "\n{}": "line 2",
		`{"op":"a"} 3`:        "more than one",
		`{"op":"a","seq":-1}`: "seq -1",
	} {
		_, err := fuzz.Parse(text)
		require.ErrorContains(t, err, what)
	}
}

func TestParseReply(t *testing.T) {
	r, err := fuzz.ParseReply([]byte(`{"ok":true,"seq":4,"address":7,"f":1.5}`))
	require.NoError(t, err)
	require.Equal(t, fuzz.Reply{Fields: map[string]any{"address": int64(7), "f": 1.5}}, r)
	require.True(t, r.Equal(fuzz.Reply{Fields: map[string]any{"address": uint32(7)}}, "address"))
	require.False(t, r.Equal(fuzz.Reply{}, "address"))

	r, err = fuzz.ParseReply([]byte(`{"ok":false,"error":{"kind":"full","text":"no room","upstream":"u"},"hashes":["a"]}`))
	require.NoError(t, err)
	require.Equal(t, fuzz.Reply{Kind: "full", Text: "no room", Upstream: "u",
		Fields: map[string]any{"hashes": []any{"a"}}}, r)

	for _, text := range []string{``, `[]`, `{}`, `{"ok":false}`, `{"ok":1}`} {
		_, err := fuzz.ParseReply([]byte(text))
		require.Error(t, err, text)
	}
}

func TestChoices(t *testing.T) {
	c := fuzz.FromBytes([]byte{1, 200, 4, 0, 0, 0})
	require.Equal(t, 1, c.Int(10))
	require.Equal(t, 0, c.Int(100))
	require.Equal(t, 4, c.Int(100000))
	require.False(t, c.More())
	require.Equal(t, 0, c.Int(10))
	for range 100 {
		require.Equal(t, 0, c.Int(1))
	}
	a, b := fuzz.FromSeed(5), fuzz.FromSeed(5)
	hits := 0
	for range 1000 {
		n := a.Int(1000)
		require.Equal(t, n, b.Int(1000))
		if a.Percent(20) {
			hits++
		}
		b.Percent(20)
	}
	require.InDelta(t, 200, hits, 60)
	require.Equal(t, "x", fuzz.Pick(fuzz.FromBytes(nil), "x", "y"))
}
