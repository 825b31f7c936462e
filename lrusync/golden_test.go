package lrusync_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/goldentest"
	"github.com/ringcache/ringcache/internal/sentinel"
	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/pycompat"
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
				l := lrusync.NewLRU(tr.Capacity, lrusync.LRUOptions[int64]{})
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
					s := l.Stats(false)
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
func lruStep(t *testing.T, l *lrusync.LRU[int64], raw json.RawMessage) (any, error) {
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
		v, ok := l.Item(key)
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
		k, v, err := l.PopOldest(op[0] == "popitem_pinned")
		return []any{k, v}, err
	case "remove_oldest":
		if l.Len() == 0 {
			return nil, nil
		}
		_, _, err := l.PopOldest(false)
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
		s := l.Stats(op[0] == "stat_delta")
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

// goldenRow is one request through vLLM's sender and receiver.
type goldenRow struct {
	DropP1  bool              `json:"drop_p1"`
	Items   [][2]any          `json:"items"`
	Cached  []bool            `json:"cached"`
	P0      []json.RawMessage `json:"p0"`
	P1      json.RawMessage   `json:"p1"`
	Inv     []string          `json:"inv"`
	P0Order string            `json:"p0_order"`
	P1Order string            `json:"p1_order"`
	P0Size  int64             `json:"p0_size"`
	P1Size  int64             `json:"p1_size"`
}

// TestGoldenSenderReceiver replays requests through vLLM's pair, step by step as
// its frontend does: cached? for all, touch all, update each; then the receiver.
func TestGoldenSenderReceiver(t *testing.T) {
	for _, f := range goldentest.Files(t, "sender_receiver") {
		for _, release := range f.Releases {
			t.Run(release, func(t *testing.T) {
				g, err := pycompat.Lookup(release)
				require.NoError(t, err)
				var traces []struct {
					Capacity float64     `json:"capacity_bytes"`
					Stats    []int64     `json:"stats"`
					Rows     []goldenRow `json:"rows"`
				}
				f.Decode(t, &traces)
				counts := map[string]int{}
				for _, tr := range traces {
					o := lrusync.Options{Capacity: tr.Capacity, Generation: g}
					s, err := lrusync.NewSender(o)
					require.NoError(t, err)
					r, err := lrusync.NewReceiver[int64](o)
					require.NoError(t, err)
					for i, row := range tr.Rows {
						goldenRequest(t, fmt.Sprintf("row %d", i), o, s, r, row, counts)
					}
					if st := s.Stats(false); tr.Stats != nil {
						require.Equal(t, tr.Stats, []int64{st.Hits, st.Total})
					}
				}
				t.Logf("sender_receiver: %d requests: %v", counts["requests"], counts)
			})
		}
	}
}

func goldenRequest(t *testing.T, at string, o lrusync.Options, s *lrusync.Sender, r *lrusync.Receiver[int64], row goldenRow, counts map[string]int) {
	counts["requests"]++
	rules := o.Generation.Cache
	if row.DropP1 {
		r.Clear()
	}
	var keys []string
	for _, it := range row.Items {
		keys = append(keys, it[0].(string))
	}
	require.Equal(t, row.Cached, s.Cached(keys...), at)
	if rules.Touch {
		for _, k := range keys {
			s.Touch(k)
		}
	}
	var fs []lrusync.Feature[int64]
	failed := false
	for i, want := range row.P0 {
		size := int64(row.Items[i][1].(float64))
		var in *lrusync.Input
		if !row.Cached[i] {
			in = &lrusync.Input{Size: size}
		}
		omit, _, err := s.Update(keys[i], in)
		var e struct{ Err, Msg string }
		if json.Unmarshal(want, &e) == nil && e.Err != "" {
			require.ErrorIs(t, err, lrusync.ErrMiss, at)
			require.Equal(t, e.Msg, sentinel.UpstreamText(err), at)
			failed = true
			break
		}
		require.NoError(t, err, at)
		requireJSON(t, want, map[bool]string{true: "nil", false: "data"}[omit], at)
		fs = append(fs, lrusync.Feature[int64]{Key: keys[i], Identifier: keys[i], Has: !omit, Value: size, Size: size})
	}
	var outcome string
	switch json.Unmarshal(row.P1, &outcome); {
	case outcome == "HANG":
		counts["hang upstream, foreseen"]++
		requireForeseenHang(t, o, r, fs)
		return
	case outcome == "skipped": // the generator did not ask the receiver
		counts["not sent upstream"]++
		require.True(t, failed || !rules.MissError, at)
	default:
		var e struct{ Err, Msg string }
		got, err := r.Features(fs)
		if json.Unmarshal(row.P1, &e) == nil && e.Err != "" {
			counts["miss"]++
			var miss *lrusync.MissError
			require.ErrorAs(t, err, &miss, at)
			require.Equal(t, e.Msg, sentinel.UpstreamText(err), at)
			if row.Inv != nil {
				require.Equal(t, row.Inv, miss.Keys, at)
			}
			for _, k := range row.Inv {
				s.Invalidate(k)
			}
			break
		}
		counts["delivered"]++
		require.NoError(t, err, at)
		requireJSON(t, row.P1, got, at)
	}
	requireContents(t, row.P0Order, row.P0Size, s.Contents, at)
	requireContents(t, row.P1Order, row.P1Size, r.Contents, at)
	require.NoError(t, s.CheckStructure(), at)
	require.NoError(t, r.CheckStructure(), at)
}

func requireContents(t *testing.T, order string, size int64, contents func() ([]lrusync.KeySize, int64), at string) {
	t.Helper()
	all, n := contents()
	var keys strings.Builder
	for _, k := range all {
		keys.WriteString(k.Key)
	}
	require.Equal(t, order, keys.String(), at)
	require.Equal(t, size, n, at)
}

// requireForeseenHang shows that a request on which the real engine never came
// back is refused: the engine's cache, touching and storing as it did, comes
// across a ghost.
func requireForeseenHang(t *testing.T, o lrusync.Options, r *lrusync.Receiver[int64], fs []lrusync.Feature[int64]) {
	t.Helper()
	s, err := lrusync.NewSender(o)
	require.NoError(t, err)
	sent := func(lrusync.Ticket) error { return nil }
	held, _ := r.Contents()
	for _, k := range held {
		_, err := s.Send([]lrusync.Item{{Key: k.Key, Have: true, Size: k.Size}}, sent)
		require.NoError(t, err)
	}
	var items []lrusync.Item
	for _, f := range fs {
		items = append(items, lrusync.Item{Key: f.Key, Have: f.Has, Size: f.Size})
	}
	_, err = s.Send(items, func(lrusync.Ticket) error { t.Error("a request that hangs the engine was sent"); return nil })
	require.ErrorIs(t, err, lrusync.ErrGhost)
	now, _ := s.Contents()
	require.Equal(t, held, now, "nothing may have happened")
	require.NoError(t, s.CheckStructure())
}
