package upstream_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/goldentest"
	"github.com/ringcache/ringcache/internal/sentinel"
	"github.com/ringcache/ringcache/lrusync/upstream"
)

// TestGoldenLRU replays what happened to vLLM's LRUCache, and compares the
// answer, contents, sizes, statistics and pins after every operation.
func TestGoldenLRU(t *testing.T) {
	for _, f := range goldentest.Files(t, "lru") {
		t.Run(f.Name, func(t *testing.T) {
			var traces []struct {
				Capacity float64             `json:"capacity"`
				Rows     [][]json.RawMessage `json:"rows"`
			}
			f.Decode(t, &traces)
			rows := 0
			for _, tr := range traces {
				l := upstream.NewLRUCache(tr.Capacity, upstream.LRUOptions[int64]{})
				for i, row := range tr.Rows {
					rows++
					at := fmt.Sprintf("row %d: %s", i, row[0])
					got, err := lruStep(t, l, row[0])
					compareAnswer(t, at, row[1], got, err)
					var pinned []string
					order := [][]any{}
					for k, e := range l.All() {
						order = append(order, []any{k, e.Value})
						require.Equal(t, e.Value, e.Size, at)
						if e.Pinned {
							pinned = append(pinned, k)
						}
					}
					slices.Sort(pinned)
					requireJSON(t, row[2], order, at)
					requireJSON(t, row[3], l.Size(), at)
					s := l.Stat(false)
					requireJSON(t, row[4], []int64{s.Hits, s.Total}, at)
					requireJSON(t, row[5], append([]string{}, pinned...), at)
					require.NoError(t, l.CheckStructure(), at)
				}
			}
			t.Logf("lru: %d traces, %d operations; releases %s to %s", len(traces), rows, f.Releases[0], f.Releases[len(f.Releases)-1])
		})
	}
}

// lruStep performs one operation; the answer is as Python's in JSON, nil for
// None.
func lruStep(t *testing.T, l *upstream.LRUCache[int64], raw json.RawMessage) (any, error) {
	var op []any
	require.NoError(t, json.Unmarshal(raw, &op))
	var key string
	if len(op) > 1 {
		key = op[1].(string)
	}
	number := func() int64 { return int64(op[2].(float64)) }
	found := func(v int64, ok bool, absent any) any {
		if ok {
			return v
		}
		return absent
	}
	keyError := fmt.Errorf("KeyError")
	switch op[0] {
	case "put":
		return nil, l.Put(key, number(), number())
	case "put_if_fits":
		return l.PutIfFits(key, number(), number())
	case "get":
		v, ok := l.Get(key)
		return found(v, ok, nil), nil
	case "getitem":
		v, ok := l.GetItem(key)
		if !ok {
			return nil, keyError
		}
		return v, nil
	case "in":
		return l.Has(key), nil
	case "touch":
		l.Touch(key)
		return nil, nil
	case "pop":
		v, ok := l.Pop(key)
		return found(v, ok, nil), nil
	case "pop_default":
		v, ok := l.Pop(key)
		return found(v, ok, number()), nil
	case "del":
		if _, ok := l.Pop(key); !ok {
			return nil, keyError
		}
		return nil, nil
	case "popitem", "popitem_pinned":
		k, v, err := l.PopItem(op[0] == "popitem_pinned")
		return []any{k, v}, err
	case "remove_oldest":
		if l.Len() == 0 {
			return nil, nil
		}
		_, _, err := l.PopItem(false)
		return nil, err
	case "pin":
		if !l.Pin(key) {
			return nil, fmt.Errorf("ValueError")
		}
		return nil, nil
	case "clear":
		l.Clear()
		return nil, nil
	case "stat", "stat_delta":
		s := l.Stat(op[0] == "stat_delta")
		return []int64{s.Hits, s.Total}, nil
	}
	t.Fatalf("unknown operation %s", raw)
	return nil, nil
}

func compareAnswer(t *testing.T, at string, want json.RawMessage, got any, err error) {
	t.Helper()
	var e struct{ Err, Msg string }
	if json.Unmarshal(want, &e) != nil || e.Err == "" {
		require.NoError(t, err, at)
		requireJSON(t, want, got, at)
		return
	}
	require.Error(t, err, at)
	switch e.Err {
	case "KeyError", "StopIteration": // Go has a bool, or the error of an empty cache
	case "ValueError", "RuntimeError":
		if strings.HasPrefix(e.Msg, "Cannot pin") {
			return
		}
		require.Equal(t, e.Msg, sentinel.UpstreamText(err), at)
	default:
		t.Fatalf("%s: unknown exception %s", at, e.Err)
	}
}

func requireJSON(t *testing.T, want json.RawMessage, got any, at string) {
	t.Helper()
	b, err := json.Marshal(got)
	require.NoError(t, err)
	require.JSONEq(t, string(want), string(b), at)
}
