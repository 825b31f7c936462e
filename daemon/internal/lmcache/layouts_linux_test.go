package lmcache

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/internal/lmcache/mp"
	"github.com/ringcache/ringcache/kv"
)

// TestLayoutsAreRemembered: each once, the last one first, also when workers have gone and after a restart; but not
// without end.
func TestLayoutsAreRemembered(t *testing.T) {
	b := newBed(t, nil)
	require.Empty(t, b.server.Layouts())
	e := b.engine("engine", since057)
	e.register(1, 1)
	e.register(2, 2)
	e.register(3, 1)
	models := func() (out []string) {
		for _, text := range b.server.Layouts() {
			var l kv.Layout
			require.NoError(t, json.Unmarshal([]byte(text), &l))
			require.NoError(t, l.Validate())
			out = append(out, fmt.Sprint(l.Model, " ", l.World))
		}
		return out
	}
	require.Equal(t, []string{"org/model 1", "org/model 2"}, models())
	e.must("EngineDrivenService/UnregisterKvCacheEngineDrivenContext", &mp.UnregisterKvCacheEngineDrivenContextRequest{InstanceId: 1},
		&mp.UnregisterKvCacheEngineDrivenContextResponse{})
	b.restart()
	require.Equal(t, []string{"org/model 1", "org/model 2"}, models())
	for world := range int64(maxLayouts + 5) {
		e.register(4, world+3)
	}
	require.Len(t, models(), maxLayouts)
	require.Equal(t, fmt.Sprint("org/model ", maxLayouts+7), models()[0])
}

// TestPhysicalSlots: an engine whose chunks have more or fewer slots than tokens says how many, and its objects are that
// large.
func TestPhysicalSlots(t *testing.T) {
	b := newBed(t, nil)
	e := b.engine("engine", since057)
	for _, slots := range []int64{8, 32} {
		e.must("EngineDrivenService/RegisterKvCacheEngineDrivenContext", &mp.RegisterKvCacheEngineDrivenContextRequest{
			InstanceId: slots, ModelName: "org/model", WorldSize: 1, BlockSize: 16, NumLayers: 2, HiddenDimSize: 8, DtypeStr: "float32", NumPhysicalSlots: slots,
		}, &mp.RegisterKvCacheEngineDrivenContextResponse{})
		p := &mp.PrepareStoreResponse{}
		k := of(e.key("w", prompt(int(slots), 16), 0, 16), 0)
		e.must("EngineDrivenService/PrepareStore", &mp.PrepareStoreRequest{Key: k, InstanceId: slots}, p)
		slot := contextOf(t, p.EncodedContext)["slots"].([]any)[0].(map[string]any)
		require.Equal(t, []any{int64(2), int64(2), slots, int64(8)}, slot["shape"])
		require.Equal(t, 2*2*slots*8*4, slot["length"])
		require.True(t, e.commitStore(k, slots, nil))
	}
}
