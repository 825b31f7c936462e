package agent

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/goldentest"
	"github.com/ringcache/ringcache/pycompat"
)

// goldenRequest is one request through vLLM's sender and receiver.
type goldenRequest struct {
	DropP1  bool              `json:"drop_p1"`
	Items   [][2]any          `json:"items"`
	Cached  json.RawMessage   `json:"cached"`
	P0      []json.RawMessage `json:"p0"`
	P1      json.RawMessage   `json:"p1"`
	Inv     []string          `json:"inv"`
	P0Order string            `json:"p0_order"`
	P1Order string            `json:"p1_order"`
	P0Size  json.RawMessage   `json:"p0_size"`
	P1Size  json.RawMessage   `json:"p1_size"`
}

// TestGoldenPairByAgent replays requests through vLLM's pair by the agent's
// lines.
func TestGoldenPairByAgent(t *testing.T) {
	for _, f := range goldentest.Files(t, "sender_receiver") {
		for _, release := range f.Releases {
			t.Run(release, func(t *testing.T) {
				g, err := pycompat.Lookup(release)
				require.NoError(t, err)
				var traces []struct {
					Capacity json.RawMessage `json:"capacity_bytes"`
					Stats    []int64         `json:"stats"`
					Rows     []goldenRequest `json:"rows"`
				}
				f.Decode(t, &traces)
				counts := map[string]int{}
				for _, tr := range traces {
					k := newTalker(t)
					for _, role := range []string{"sender", "receiver"} {
						k.ok(fmt.Sprintf(`{"op":"pair.new","pair":%q,"role":%q,"capacity":%s,"generation":%q}`, role, role, tr.Capacity, release))
					}
					for _, row := range tr.Rows {
						counts["requests"]++
						row.replay(k, g, counts)
					}
					if tr.Stats != nil {
						k.ok(`{"op":"pair.state","pair":"sender"}`, "hits", fmt.Sprint(tr.Stats[0]), "total", fmt.Sprint(tr.Stats[1]))
					}
				}
				t.Logf("sender_receiver by agent: %d requests: %v", counts["requests"], counts)
			})
		}
	}
}

func (row goldenRequest) replay(k *talker, g *pycompat.Generation, counts map[string]int) {
	if row.DropP1 {
		k.ok(`{"op":"pair.clear","pair":"receiver"}`)
	}
	var keys []string
	for _, it := range row.Items {
		keys = append(keys, it[0].(string))
	}
	var cached []bool
	require.NoError(k.t, json.Unmarshal(row.Cached, &cached))
	k.ok(`{"op":"pair.cached","pair":"sender","keys":`+quote(keys)+`}`, "cached", string(row.Cached))
	if g.Cache.Touch {
		for _, key := range keys {
			k.ok(`{"op":"pair.touch","pair":"sender","key":"` + key + `"}`)
		}
	}
	var features []string
	failed := false
	for i, want := range row.P0 {
		value := "null"
		if !cached[i] {
			value = bytesItem(int(row.Items[i][1].(float64)))
		}
		line := `{"op":"pair.update","pair":"sender","key":"` + keys[i] + `","value":` + value + `}`
		if e := goldentest.AsError(want); e != nil {
			k.fails("miss", line, e.Msg)
			failed = true
			break
		}
		data := map[string]string{`"nil"`: `"omitted"`, `"data"`: `"sent"`}[string(want)]
		k.ok(line, "data", data)
		if data == `"omitted"` {
			value = "null"
		}
		features = append(features, `{"key":"`+keys[i]+`","identifier":"`+keys[i]+`","value":`+value+`}`)
	}
	line := `{"op":"pair.features","pair":"receiver","features":[` + strings.Join(features, ",") + `]}`
	var outcome string
	switch e := goldentest.AsError(row.P1); {
	case e != nil:
		counts["miss"]++
		out := k.do(line)
		require.Equal(k.t, "miss", out["error"].(map[string]any)["kind"])
		require.Equal(k.t, e.Msg, out["error"].(map[string]any)["upstream"])
		for i, key := range row.Inv {
			require.Equal(k.t, key, out["hashes"].([]any)[i])
			k.ok(`{"op":"pair.invalidate","pair":"sender","key":"` + key + `"}`)
		}
		require.True(k.t, row.Inv == nil || len(row.Inv) == len(out["hashes"].([]any)))
	case json.Unmarshal(row.P1, &outcome) == nil && outcome == "HANG":
		counts["hang upstream"]++ // the end of its trace
		k.ok(line)
		return
	case outcome == "skipped": // the generator did not ask the receiver
		counts["not sent upstream"]++
		require.True(k.t, failed || !g.Cache.MissError)
	default:
		counts["delivered"]++
		sizes := []json.Number{}
		for _, v := range k.ok(line)["values"].([]any) {
			sizes = append(sizes, itemBytes(k.t, v))
		}
		require.JSONEq(k.t, string(row.P1), quote(sizes))
	}
	k.ok(`{"op":"pair.state","pair":"sender"}`, "order", letters(row.P0Order), "size", string(row.P0Size))
	k.ok(`{"op":"pair.state","pair":"receiver"}`, "order", letters(row.P1Order), "size", string(row.P1Size))
}

// letters are the letters of a word as a JSON list.
func letters(s string) string {
	return quote(append([]string{}, strings.Split(s, "")...))
}
