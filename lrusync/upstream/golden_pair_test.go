package upstream_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/goldentest"
	"github.com/ringcache/ringcache/internal/lru"
	"github.com/ringcache/ringcache/internal/sentinel"
	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/lrusync/upstream"
	"github.com/ringcache/ringcache/pycompat"
)

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
					s, err := upstream.NewSenderCache(o)
					require.NoError(t, err)
					r, err := upstream.NewReceiverCache[int64](o)
					require.NoError(t, err)
					for i, row := range tr.Rows {
						goldenRequest(t, fmt.Sprintf("row %d", i), o, s, r, row, counts)
					}
					if st := s.Stats(); tr.Stats != nil {
						require.Equal(t, tr.Stats, []int64{st.Hits, st.Total})
					}
				}
				t.Logf("sender_receiver: %d requests: %v", counts["requests"], counts)
			})
		}
	}
}

func goldenRequest(t *testing.T, at string, o lrusync.Options, s *upstream.SenderCache, r *upstream.ReceiverCache[int64], row goldenRow, counts map[string]int) {
	counts["requests"]++
	rules := o.Generation.Cache
	if row.DropP1 {
		r.Clear()
	}
	var keys []string
	for _, it := range row.Items {
		keys = append(keys, it[0].(string))
	}
	require.Equal(t, row.Cached, s.IsCached(keys...), at)
	if rules.Touch {
		for _, k := range keys {
			s.Touch(k)
		}
	}
	var fs []lrusync.Feature[int64]
	failed := false
	for i, want := range row.P0 {
		size := int64(row.Items[i][1].(float64))
		var in *upstream.Input
		if !row.Cached[i] {
			in = &upstream.Input{Size: size}
		}
		omit, _, err := s.GetAndUpdate(keys[i], in)
		var e struct{ Err, Msg string }
		if json.Unmarshal(want, &e) == nil && e.Err != "" {
			requireMiss(t, err, keys[i])
			require.Equal(t, e.Msg, sentinel.UpstreamText(err), at)
			failed = true
			break
		}
		require.NoError(t, err, at)
		requireJSON(t, want, map[bool]string{true: "nil", false: "data"}[omit], at)
		fs = append(fs, lrusync.Feature[int64]{Key: keys[i], Identifier: keys[i], HasData: !omit, Value: size, Size: size})
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
		got, err := r.GetAndUpdate(fs)
		if json.Unmarshal(row.P1, &e) == nil && e.Err != "" {
			counts["miss"]++
			var miss *upstream.MissError
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
func requireForeseenHang(t *testing.T, o lrusync.Options, r *upstream.ReceiverCache[int64], fs []lrusync.Feature[int64]) {
	t.Helper()
	s, err := lrusync.NewSender(o)
	require.NoError(t, err)
	ctx := context.Background()
	sent := func(lrusync.Ticket) error { return nil }
	held, _ := r.Contents()
	for _, k := range held {
		_, err := s.Send(ctx, []lrusync.Item{{Key: k.Key, HasData: true, Size: k.Size}}, sent)
		require.NoError(t, err)
	}
	var items []lrusync.Item
	for _, f := range fs {
		items = append(items, lrusync.Item{Key: f.Key, HasData: f.HasData, Size: f.Size})
	}
	_, err = s.Send(ctx, items, func(lrusync.Ticket) error { t.Error("a request that hangs the engine was sent"); return nil })
	var hang *lru.HangError
	require.ErrorIs(t, err, lrusync.ErrHang)
	require.ErrorAs(t, err, &hang)
	require.Contains(t, keysOfFeatures(fs), hang.Key)
	now, _ := s.Contents()
	require.Equal(t, held, now, "nothing may have happened")
	require.NoError(t, s.CheckStructure())
}

func keysOfFeatures(fs []lrusync.Feature[int64]) (keys []string) {
	for _, f := range fs {
		keys = append(keys, f.Key)
	}
	return keys
}
