package model_test

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/model"
)

// eachCacheTrace decodes the traces that vLLM left, release by release, and runs a subtest for
// each. (The readers of golden files in internal are out of bounds here.)
func eachCacheTrace[T any](t *testing.T, section string, run func(t *testing.T, r model.Release, traces []T)) {
	t.Helper()
	files, err := filepath.Glob("../../testdata/golden/" + section + ".*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var golden struct {
			Releases []string
			Data     []T
		}
		require.NoError(t, json.Unmarshal(text, &golden))
		require.NotEmpty(t, golden.Releases)
		for _, version := range golden.Releases {
			t.Run(version, func(t *testing.T) {
				r, err := model.Lookup(version)
				require.NoError(t, err)
				run(t, r, golden.Data)
			})
		}
	}
}

// talk performs operations of one system in a test.
type talk struct {
	*testing.T
	fuzz.System
}

func (k talk) do(name string, args map[string]any) fuzz.Reply {
	k.Helper()
	replies, err := k.Do([]fuzz.Op{{Name: name, Args: args}})
	require.NoError(k, err)
	require.Len(k, replies, 1)
	return replies[0]
}

func (k talk) sameJSON(want json.RawMessage, got any, at string) {
	k.Helper()
	text, err := json.Marshal(got)
	require.NoError(k, err)
	require.JSONEq(k, string(want), string(text), at)
}

// exception is how traces write one of Python.
type exception struct{ Err, Msg string }

func asException(raw json.RawMessage) (e exception, ok bool) {
	ok = json.Unmarshal(raw, &e) == nil && e.Err != ""
	return e, ok
}

type lruTrace struct {
	Capacity float64
	Rows     [][]json.RawMessage // operation, answer, contents, size, [hits, total], pinned
}

func TestLRUModelAgainstGolden(t *testing.T) {
	eachCacheTrace(t, "lru", func(t *testing.T, r model.Release, traces []lruTrace) {
		rows := 0
		for _, trace := range traces {
			k := talk{t, model.NewLRU(r, model.CacheOptions{Upstream: true})}
			k.do("lru.new", map[string]any{"lru": "l", "capacity": trace.Capacity})
			for i, row := range trace.Rows {
				at := fmt.Sprintf("row %d: %s", i, row[0])
				k.lruRow(row, at)
				state := k.do("lru.state", map[string]any{"lru": "l"}).Fields
				order := [][]any{}
				for _, key := range state["order"].([]string) {
					order = append(order, []any{key, state["sizes"].(map[string]int64)[key]})
				}
				k.sameJSON(row[2], order, at)
				k.sameJSON(row[3], state["size"], at)
				stat := k.do("lru.stat", map[string]any{"lru": "l"}).Fields
				k.sameJSON(row[4], []any{stat["hits"], stat["total"]}, at)
				k.sameJSON(row[5], state["pinned"], at)
				rows++
			}
		}
		t.Logf("%d traces, %d operations", len(traces), rows)
	})
}

// lruRow performs an operation of a trace, and compares the answer.
func (k talk) lruRow(row []json.RawMessage, at string) {
	k.Helper()
	var op []any
	require.NoError(k, json.Unmarshal(row[0], &op))
	name, args := op[0].(string), map[string]any{"lru": "l"}
	if len(op) > 1 {
		args["key"] = op[1]
	}
	field := map[string]string{"get": "size", "pop": "size", "in": "has", "put_if_fits": "stored"}[name]
	switch name {
	case "put", "put_if_fits":
		args["size"] = op[2]
	case "in":
		name = "has"
	case "getitem": // a get that counts no miss, and refuses it
		if name = "get"; !k.do("lru.has", args).Fields["has"].(bool) {
			e, ok := asException(row[1])
			require.True(k, ok && e.Err == "KeyError", at)
			return
		}
		field = "size"
	case "pop_default":
		if name, field = "pop", "size"; !k.do("lru.has", args).Fields["has"].(bool) {
			k.sameJSON(row[1], op[2], at)
			return
		}
	case "del":
		name = "pop"
		e, absent := asException(row[1])
		require.Equal(k, absent, !k.do("lru.has", args).Fields["has"].(bool), "%s: %s", at, e.Err)
		if absent {
			return
		}
	case "popitem_pinned":
		name, args["remove_pinned"] = "popitem", true
	case "remove_oldest":
		if name = "popitem"; len(k.do("lru.state", map[string]any{"lru": "l"}).Fields["order"].([]string)) == 0 {
			return
		}
	case "stat_delta":
		name, args["delta"] = "stat", true
	}
	reply := k.do("lru."+name, args)
	if e, ok := asException(row[1]); ok {
		require.NotEmpty(k, reply.Kind, at)
		require.True(k, e.Err == "StopIteration" || e.Msg == reply.Upstream, "%s: %q", at, reply.Upstream)
		return
	}
	require.Empty(k, reply.Kind, at)
	switch {
	case field != "":
		k.sameJSON(row[1], reply.Fields[field], at)
	case op[0] == "popitem" || op[0] == "popitem_pinned":
		k.sameJSON(row[1], []any{reply.Fields["key"], reply.Fields["size"]}, at)
	case name == "stat":
		k.sameJSON(row[1], []any{reply.Fields["hits"], reply.Fields["total"]}, at)
	default:
		require.JSONEq(k, "null", string(row[1]), at)
	}
}

// pairRow is one request through vLLM's sender and receiver.
type pairRow struct {
	DropP1  bool `json:"drop_p1"`
	Items   [][2]any
	Cached  json.RawMessage
	P0      []json.RawMessage
	P1      json.RawMessage
	Inv     []string
	P0Order string          `json:"p0_order"`
	P1Order string          `json:"p1_order"`
	P0Size  json.RawMessage `json:"p0_size"`
	P1Size  json.RawMessage `json:"p1_size"`
}

type pairTrace struct {
	Capacity float64 `json:"capacity_bytes"`
	Stats    []int64
	Rows     []pairRow
}

// TestPairModelAgainstGolden replays requests as vLLM's frontend makes them: cached? for all,
// touch all, update each, then the receiver.
func TestPairModelAgainstGolden(t *testing.T) {
	eachCacheTrace(t, "sender_receiver", func(t *testing.T, r model.Release, traces []pairTrace) {
		counts := map[string]int{}
		for _, trace := range traces {
			k := talk{t, model.NewPair(r, model.CacheOptions{Upstream: true})}
			for _, role := range []string{"sender", "receiver"} {
				k.do("pair.new", map[string]any{"pair": role, "role": role, "capacity": trace.Capacity})
			}
			for i, row := range trace.Rows {
				counts[k.pairRow(row, r, fmt.Sprintf("row %d", i))]++
			}
			if state := k.do("pair.state", map[string]any{"pair": "sender"}); trace.Stats != nil {
				require.EqualValues(t, trace.Stats,
					[]int64{state.Fields["hits"].(int64), state.Fields["total"].(int64)})
			}
		}
		t.Logf("%d traces, requests %v", len(traces), counts)
	})
}

// bytesItem is the item of the traces.
func bytesItem(size int) map[string]any {
	data := map[string]any{"dtype": "uint8", "shape": []any{size}, "hex": hex.EncodeToString(make([]byte, size))}
	return map[string]any{"type": "item", "fields": []any{map[string]any{"name": "x", "data": data,
		"field": map[string]any{"kind": "batched"}}}}
}

// pairRow replays a request and returns what became of it.
func (k talk) pairRow(row pairRow, r model.Release, at string) string {
	k.Helper()
	if row.DropP1 {
		k.do("pair.clear", map[string]any{"pair": "receiver"})
	}
	var keys []any
	for _, it := range row.Items {
		keys = append(keys, it[0])
	}
	cached := k.do("pair.cached", map[string]any{"pair": "sender", "keys": keys}).Fields["cached"].([]bool)
	k.sameJSON(row.Cached, cached, at)
	for i, key := range keys {
		if r.Touch && (cached[i] || !r.GhostTouch) { // the script that made the traces spared the sender its ghosts
			k.do("pair.touch", map[string]any{"pair": "sender", "key": key})
		}
	}
	var features []any
	for i, want := range row.P0 {
		args := map[string]any{"pair": "sender", "key": keys[i], "value": nil}
		if !cached[i] {
			args["value"] = bytesItem(int(row.Items[i][1].(float64)))
		}
		reply := k.do("pair.update", args)
		if e, ok := asException(want); ok {
			require.Equal(k, "miss", reply.Kind, at)
			require.Equal(k, e.Msg, reply.Upstream, at)
			break // and so it was not sent
		}
		require.Equal(k, map[string]any{`"nil"`: "omitted", `"data"`: "sent"}[string(want)], reply.Fields["data"], at)
		feature := map[string]any{"key": keys[i], "value": args["value"]}
		if reply.Fields["data"] == "omitted" {
			feature["value"] = nil
		}
		features = append(features, feature)
	}
	outcome := "not sent"
	if string(row.P1) != `"skipped"` {
		if outcome = k.deliver(row, features, at); outcome == "hang" {
			return outcome
		}
	}
	for _, end := range []struct {
		role, order string
		size        json.RawMessage
	}{{"sender", row.P0Order, row.P0Size}, {"receiver", row.P1Order, row.P1Size}} {
		state := k.do("pair.state", map[string]any{"pair": end.role}).Fields
		require.Equal(k, end.order, strings.Join(state["order"].([]string), ""), "%s: %s", at, end.role)
		k.sameJSON(end.size, state["size"], at)
	}
	return outcome
}

// deliver hands a request to the receiver.
func (k talk) deliver(row pairRow, features []any, at string) string {
	k.Helper()
	reply := k.do("pair.features", map[string]any{"pair": "receiver", "features": features})
	if string(row.P1) == `"HANG"` {
		require.Equal(k, "hang", reply.Kind, at)
		require.Equal(k, "hang", k.do("pair.state", map[string]any{"pair": "receiver"}).Kind, at)
		return "hang"
	}
	if e, ok := asException(row.P1); ok {
		require.Equal(k, "miss", reply.Kind, at)
		require.Equal(k, e.Msg, reply.Upstream, at)
		require.True(k, row.Inv == nil || fmt.Sprint(row.Inv) == fmt.Sprint(reply.Fields["hashes"]), at)
		for _, key := range row.Inv {
			k.do("pair.invalidate", map[string]any{"pair": "sender", "key": key})
		}
		return "missed"
	}
	sizes := []any{}
	for _, v := range reply.Fields["values"].([]any) {
		field := v.(map[string]any)["fields"].([]any)[0].(map[string]any)
		sizes = append(sizes, field["data"].(map[string]any)["shape"].([]any)[0])
	}
	k.sameJSON(row.P1, sizes, at)
	return "delivered"
}
