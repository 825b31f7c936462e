package enginecore_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/engine/enginetest/wire"
	"github.com/ringcache/ringcache/internal/goldentest"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde/enginecore"
)

func TestGoldenHandshake(t *testing.T) {
	for _, f := range goldentest.Files(t, "requests") {
		f.Each(t, func(t *testing.T, g *pycompat.Generation) {
			p := newPair(t, g, 0)
			checked, skipped := 0, map[string]int{}
			for _, row := range goldentest.Rows[goldentest.Frames](t, f, "containers") {
				switch row.Name {
				case "items", "items_in_map":
					skipped["are items"]++
					continue
				case "handshake_init":
					i := &enginecore.Init{Inputs: []string{"ipc://a"}, Outputs: []string{"ipc://b"}, ParallelConfig: map[string]any{}}
					got, err := enginecore.EncodeInit(i)
					require.NoError(t, err)
					want := row.Frames[0].Raw
					// Three releases know a third entry, which has a default.
					if tail := append([]byte("\xb4parallel_config_hash"), 0xc0); strings.HasSuffix(string(want), string(tail)) {
						require.EqualValues(t, 0x83, want[0])
						want = append([]byte{0x82}, want[1:len(want)-len(tail)]...)
					}
					require.Equal(t, want, got)
					back, err := wire.DecodeInit(got)
					require.NoError(t, err)
					require.Equal(t, i, back)
				case "HELLO", "READY":
					h := &enginecore.Handshake{Status: row.Name, Local: true}
					got, err := wire.EncodeHandshake(h)
					require.NoError(t, err)
					row.Frames[0].Equal(t, got, row.Name)
					back, err := enginecore.DecodeHandshake(got)
					require.NoError(t, err)
					require.Empty(t, back.Rest)
					back.Rest = nil
					require.Equal(t, h, back)
				case "ready_response":
					r := goldenReady(t, f)
					got, err := p.engine.EncodeReady(r)
					require.NoError(t, err)
					row.Frames[0].Equal(t, got, row.Name)
					back, err := enginecore.DecodeReady(got)
					require.NoError(t, err)
					again, err := p.engine.EncodeReady(back)
					require.NoError(t, err)
					require.Equal(t, got, again)
					require.Equal(t, 7, back.MaxModelLen)
					require.Equal(t, slices.Contains(g.ReadyFields, "world_size"), back.WorldSize == 7)
				default:
					t.Fatalf("container %q", row.Name)
				}
				checked++
			}
			require.Equal(t, len(g.ReadyFields) > 0, f.Section(t, "ready_fields") != nil)
			f.Report(t, checked, skipped)
		})
	}
}

// goldenReady makes the ready message from the arguments that Python had; what
// has a default there is in Rest.
func goldenReady(t testing.TB, f goldentest.File) *enginecore.Ready {
	var list []struct {
		Name string
		Kw   map[string]any
	}
	require.NoError(t, json.Unmarshal(f.Section(t, "containers"), &list))
	r := &enginecore.Ready{Rest: map[string]any{
		"enable_sleep_mode": false, "supports_draft_weight_updates": false, "coord_store_port": 0,
	}}
	var names []string
	require.NoError(t, json.Unmarshal(f.Section(t, "ready_fields"), &names))
	for _, row := range list {
		for k, v := range row.Kw {
			if n, isNumber := v.(float64); isNumber {
				v = int64(n)
			}
			r.Rest[k] = v
		}
	}
	for k := range r.Rest {
		if !strings.Contains(" "+strings.Join(names, " ")+" ", " "+k+" ") {
			delete(r.Rest, k)
		}
	}
	return r
}
