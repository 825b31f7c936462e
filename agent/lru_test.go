package agent

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/goldentest"
)

const (
	textTooLarge = "value too large"
	textPinned   = "All items are pinned, cannot remove oldest from the cache."
)

func TestLRUFamily(t *testing.T) {
	k := newTalker(t)
	k.ok(`{"op":"lru.new","lru":"l","capacity":10}`)
	k.refuses("invalid", `{"op":"lru.new","lru":"l","capacity":10}`, `lru "l" exists`)
	k.ok(`{"op":"lru.put","lru":"l","key":"A","size":4}`, "stored", `true`)
	k.ok(`{"op":"lru.put","lru":"l","key":"B","size":4}`, "stored", `true`)
	k.ok(`{"op":"lru.state","lru":"l"}`, "order", `["A","B"]`, "size", `8`, "pinned", `[]`, "sizes", `{"A":4,"B":4}`)
	k.ok(`{"op":"lru.get","lru":"l","key":"A"}`, "found", `true`, "size", `4`)
	k.ok(`{"op":"lru.get","lru":"l","key":"Z"}`, "found", `false`, "size", `null`)
	k.ok(`{"op":"lru.has","lru":"l","key":"A"}`, "has", `true`)
	k.ok(`{"op":"lru.has","lru":"l","key":"Z"}`, "has", `false`)
	k.ok(`{"op":"lru.stat","lru":"l"}`, "hits", `1`, "total", `2`)
	k.ok(`{"op":"lru.stat","lru":"l","delta":true}`, "hits", `1`, "total", `2`)
	k.ok(`{"op":"lru.stat","lru":"l","delta":true}`, "hits", `0`, "total", `0`)
	k.ok(`{"op":"lru.touch","lru":"l","key":"B"}`)
	k.ok(`{"op":"lru.touch","lru":"l","key":"Z"}`)
	k.ok(`{"op":"lru.state","lru":"l"}`, "order", `["A","B"]`)

	k.ok(`{"op":"lru.pin","lru":"l","key":"A"}`)
	k.fails("invalid", `{"op":"lru.pin","lru":"l","key":"Z"}`, "Cannot pin key: Z not in cache.")
	k.ok(`{"op":"lru.put","lru":"l","key":"C","size":4}`)
	k.ok(`{"op":"lru.pin","lru":"l","key":"C"}`)
	k.ok(`{"op":"lru.state","lru":"l"}`, "order", `["A","C"]`, "pinned", `["A","C"]`)
	k.fails("invalid", `{"op":"lru.put","lru":"l","key":"D","size":8}`, textPinned)
	k.fails("invalid", `{"op":"lru.put_if_fits","lru":"l","key":"D","size":8}`, textPinned)
	k.fails("invalid", `{"op":"lru.popitem","lru":"l"}`, textPinned)
	k.ok(`{"op":"lru.popitem","lru":"l","remove_pinned":true}`, "key", `"A"`, "size", `4`)
	k.ok(`{"op":"lru.pop","lru":"l","key":"C"}`, "found", `true`, "size", `4`)
	k.ok(`{"op":"lru.pop","lru":"l","key":"C"}`, "found", `false`)
	k.fails("invalid", `{"op":"lru.popitem","lru":"l"}`, textPinned)
	k.refuses("invalid", `{"op":"lru.popitem","lru":"l","remove_pinned":true}`, "the lru is empty")

	k.fails("too_large", `{"op":"lru.put","lru":"l","key":"D","size":11}`, textTooLarge)
	k.ok(`{"op":"lru.put_if_fits","lru":"l","key":"D","size":11}`, "stored", `false`)
	k.ok(`{"op":"lru.put_if_fits","lru":"l","key":"D","size":10}`, "stored", `true`)
	k.ok(`{"op":"lru.clear","lru":"l"}`)
	k.ok(`{"op":"lru.state","lru":"l"}`, "order", `[]`, "size", `0`, "sizes", `{}`)
	k.ok(`{"op":"lru.stat","lru":"l"}`, "hits", `0`, "total", `0`)
	k.ok(`{"op":"lru.close","lru":"l"}`)
	k.refuses("invalid", `{"op":"lru.state","lru":"l"}`, `no lru "l"`)

	k.ok(`{"op":"lru.new","lru":"l","capacity":10.5,"generation":"0.12.0"}`)
	k.ok(`{"op":"lru.touch","lru":"l","key":"ghost"}`)
	k.ok(`{"op":"lru.put","lru":"l","key":"A","size":10}`)
	k.ok(`{"op":"lru.put","lru":"l","key":"B","size":0}`)
	k.ok(`{"op":"lru.put","lru":"l","key":"C","size":1}`)
	k.ok(`{"op":"lru.state","lru":"l"}`, "order", `["B","C"]`, "size", `1`)

	for _, anew := range []bool{false, true} {
		name := fmt.Sprint(anew)
		k.ok(`{"op":"lru.new","lru":"` + name + `","capacity":10,"grow_anew":` + name + `}`)
		for _, put := range []string{`"B","size":3`, `"A","size":4`, `"C","size":1`, `"A","size":5`} {
			k.ok(`{"op":"lru.put","lru":"` + name + `","key":` + put + `}`)
		}
		k.ok(`{"op":"lru.state","lru":"`+name+`"}`, "order", map[bool]string{false: `["B","C","A"]`, true: `["C","A"]`}[anew])
	}
}

func TestBadLRULines(t *testing.T) {
	k := newTalker(t)
	k.ok(`{"op":"lru.new","lru":"l","capacity":10}`)
	for _, c := range []struct{ line, text string }{
		{`{"op":"lru.new"}`, `field "lru" is missing`},
		{`{"op":"lru.new","lru":"x"}`, `field "capacity" is missing`},
		{`{"op":"lru.new","lru":"x","capacity":"10"}`, `field "capacity": json: cannot unmarshal string`},
		{`{"op":"lru.new","lru":5,"capacity":10}`, `field "lru": json: cannot unmarshal number`},
		{`{"op":"lru.new","lru":"x","capacity":-1}`, "capacity of -1 bytes"},
		{`{"op":"lru.new","lru":"x","capacity":1e30}`, "capacity of 1e+30 bytes"},
		{`{"op":"lru.new","lru":"x","capacity":1e400}`, `field "capacity": json: cannot unmarshal number 1e400`},
		{`{"op":"lru.new","lru":"x","capacity":10,"grow_anew":1}`, `field "grow_anew": json: cannot unmarshal number`},
		{`{"op":"lru.put","lru":"l","key":"A"}`, `field "size" is missing`},
		{`{"op":"lru.put","lru":"l","size":1}`, `field "key" is missing`},
		{`{"op":"lru.put","lru":"l","key":"A","size":1.5}`, `field "size": json: cannot unmarshal number 1.5`},
		{`{"op":"lru.put","lru":"l","key":"A","size":-1}`, `size -1 of key "A"`},
		{`{"op":"lru.put_if_fits","lru":"l","key":"A","size":-1}`, `size -1 of key "A"`},
		{`{"op":"lru.put","lru":"l","key":"A","size":99999999999999999999}`, `field "size": json: cannot unmarshal number 99999999999999999999`},
		{`{"op":"lru.put_if_fits","lru":"l","key":"A"}`, `field "size" is missing`},
		{`{"op":"lru.get","lru":"l"}`, `field "key" is missing`},
		{`{"op":"lru.get","lru":"l","key":5}`, `field "key": json: cannot unmarshal number`},
		{`{"op":"lru.stat","lru":"l","delta":"yes"}`, `field "delta": json: cannot unmarshal string`},
		{`{"op":"lru.popitem","lru":"l","remove_pinned":1}`, `field "remove_pinned": json: cannot unmarshal number`},
	} {
		t.Run(c.text, func(t *testing.T) { k.in(t).refuses("invalid", c.line, c.text) })
	}
	k.refuses("unsupported", `{"op":"lru.new","lru":"x","capacity":10,"generation":"9.9.9"}`, `"9.9.9"`)
	for _, op := range k.a.Ops() {
		if len(op) > 4 && op[:4] == "lru." && op != "lru.new" {
			line := `{"op":"` + op + `","lru":"none"`
			if slices.Contains(strings.Fields(k.a.ops[op].fields), "size") {
				line += `,"size":1`
			}
			if slices.Contains(strings.Fields(k.a.ops[op].fields), "key") {
				line += `,"key":"A"`
			}
			t.Run(op, func(t *testing.T) { k.in(t).refuses("invalid", line+"}", `no lru "none"`) })
		}
	}
	k.ok(`{"op":"lru.state","lru":"l"}`, "order", `[]`)
}

func quote(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

// TestGoldenLRUByAgent replays what happened to vLLM's LRUCache through the
// agent's lines.
func TestGoldenLRUByAgent(t *testing.T) {
	for _, f := range goldentest.Files(t, "lru") {
		t.Run(f.Name, func(t *testing.T) {
			var traces []struct {
				Capacity json.RawMessage      `json:"capacity"`
				Rows     [][6]json.RawMessage `json:"rows"`
			}
			f.Decode(t, &traces)
			rows := 0
			for i, tr := range traces {
				g := lruReplay{newTalker(t), fmt.Sprint("trace", i)}
				g.ok(fmt.Sprintf(`{"op":"lru.new","lru":%q,"capacity":%s,"generation":%q}`, g.name, tr.Capacity, f.Releases[0]))
				for _, row := range tr.Rows {
					rows++
					g.step(row[0], row[1])
					order, sizes := []any{}, map[string]json.RawMessage{}
					var pairs [][2]json.RawMessage
					require.NoError(t, json.Unmarshal(row[2], &pairs))
					for _, p := range pairs {
						var key string
						require.NoError(t, json.Unmarshal(p[0], &key))
						order, sizes[key] = append(order, key), p[1]
					}
					g.ok(g.line("state"), "order", quote(order), "sizes", quote(sizes), "size", string(row[3]), "pinned", string(row[5]))
					var stats [2]json.RawMessage
					require.NoError(t, json.Unmarshal(row[4], &stats))
					g.ok(g.line("stat"), "hits", string(stats[0]), "total", string(stats[1]))
				}
			}
			t.Logf("lru by agent: %d traces, %d operations; releases %s to %s", len(traces), rows, f.Releases[0], f.Releases[len(f.Releases)-1])
		})
	}
}

type lruReplay struct {
	*talker
	name string
}

// line is a request, with further fields by pairs.
func (g lruReplay) line(op string, fields ...any) string {
	s := fmt.Sprintf(`{"op":"lru.%s","lru":%q`, op, g.name)
	for i := 0; i < len(fields); i += 2 {
		s += fmt.Sprintf(`,%q:%s`, fields[i], quote(fields[i+1]))
	}
	return s + "}"
}

// step performs one operation of a trace and compares the answer.
func (g lruReplay) step(raw, answer json.RawMessage) {
	var op []any
	require.NoError(g.t, json.Unmarshal(raw, &op))
	e := goldentest.AsError(answer)
	found := func(out map[string]any, absent string) {
		if out["found"] == false {
			require.JSONEq(g.t, absent, string(answer))
			return
		}
		require.JSONEq(g.t, string(answer), quote(out["size"]))
	}
	failed := func(line, kind string) bool {
		switch {
		case e == nil:
			return false
		case e.Msg == "": // StopIteration
			g.refuses(kind, line, "the lru is empty")
		default:
			g.fails(kind, line, e.Msg)
		}
		return true
	}
	switch name := op[0].(string); name {
	case "put", "put_if_fits":
		line := g.line(name, "key", op[1], "size", op[2])
		kind := "invalid"
		if e != nil && e.Type == "ValueError" {
			kind = "too_large"
		}
		if !failed(line, kind) {
			want := "true"
			if name == "put_if_fits" {
				want = string(answer)
			}
			g.ok(line, "stored", want)
		}
	case "get":
		found(g.ok(g.line("get", "key", op[1])), "null")
	case "getitem": // a miss of it is not counted, so it is only looked for
		if e != nil {
			g.ok(g.line("has", "key", op[1]), "has", "false")
			return
		}
		found(g.ok(g.line("get", "key", op[1])), "")
	case "in":
		g.ok(g.line("has", "key", op[1]), "has", string(answer))
	case "touch":
		g.ok(g.line("touch", "key", op[1]))
	case "pop":
		found(g.ok(g.line("pop", "key", op[1])), "null")
	case "pop_default":
		found(g.ok(g.line("pop", "key", op[1])), "-1")
	case "del":
		g.ok(g.line("pop", "key", op[1]), "found", fmt.Sprint(e == nil))
	case "popitem", "popitem_pinned":
		if line := g.line("popitem", "remove_pinned", name == "popitem_pinned"); !failed(line, "invalid") {
			out := g.ok(line)
			require.JSONEq(g.t, string(answer), quote([]any{out["key"], out["size"]}))
		}
	case "remove_oldest":
		if len(g.ok(g.line("state"))["order"].([]any)) == 0 {
			require.Nil(g.t, e) // upstream has nothing to do
			return
		}
		if line := g.line("popitem"); !failed(line, "invalid") {
			g.ok(line)
		}
	case "pin":
		if line := g.line("pin", "key", op[1]); !failed(line, "invalid") {
			g.ok(line)
		}
	case "clear":
		g.ok(g.line("clear"))
	case "stat", "stat_delta":
		out := g.ok(g.line("stat", "delta", name == "stat_delta"))
		require.JSONEq(g.t, string(answer), quote([]any{out["hits"], out["total"]}))
	default:
		g.t.Fatalf("unknown operation %s", raw)
	}
}
