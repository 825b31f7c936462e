package agent

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/corpus"
	"github.com/ringcache/ringcache/shmring/segment"
)

// FuzzAgent: whatever the lines, every one is answered with one JSON object,
// and nothing is left in shared memory.
func FuzzAgent(f *testing.F) {
	corpus.Add(f, "agent")
	f.Add([]byte(`{"op":"ring.new","ring":"r","size":100}` + "\n" + `{"op":"ring.alloc","ring":"r","size":20}` + "\n" + `{"op":"ring.free","ring":"r","all":true}`))
	f.Add([]byte(`{"op":"store.create","store":"w","size":2000,"max_object":900,"readers":1,"lock":true}` + "\n" +
		`{"op":"store.put","store":"w","key":"a","value":` + pickleA + `}` + "\n" + `{"op":"store.get","store":"w","address":0,"id":0}` + "\n" + `{"op":"store.state","store":"w"}`))
	f.Add([]byte(`{"op":"store.create","store":"p","size":4000,"max_object":900,"readers":1,"policy":"pool","name":"p"}` + "\n" +
		`{"op":"store.begin","store":"p","request":"r"}` + "\n" + `{"op":"store.put","store":"p","key":"a","request":"r","value":` + pickleA + `}` + "\n" +
		`{"op":"store.commit","store":"p","request":"r"}` + "\n" + `{"op":"store.abort","store":"p","request":"r"}` + "\n" + `{"op":"store.fence","store":"p"}` + "\n" +
		`{"op":"store.detach","store":"p"}` + "\n" + `{"op":"store.adopt","store":"q","size":4000,"max_object":900,"readers":1,"name":"p"}` + "\n" +
		`{"op":"store.reset_readers","store":"q","readers":2}` + "\n" + `{"op":"store.evict","store":"q","key":"a"}`))
	f.Add([]byte(`{"op":"store.create","store":"w","name":"n","size":2000,"max_object":900,"readers":1,"generation":"0.15.1"}` + "\n" +
		`{"op":"store.open","store":"r","name":"n","size":2000,"max_object":900,"readers":1,"generation":"0.15.1"}` + "\n" +
		`{"op":"store.reserve","store":"w","key":"a","value":{"type":"item","fields":[{"name":"x","data":{"dtype":"uint8","shape":[300]},"field":{"kind":"batched"}}]}}` + "\n" +
		`{"op":"store.fill","store":"w","key":"a","field":"x","offset":0,"hex":"00"}` + "\n" + `{"op":"store.close","store":"w"}`))
	f.Add([]byte(`{"op":"serde.decode","kind":"item","frames":["81a16182a464617461c0a56669656c6492a76261746368656481ab6b6565705f6f6e5f637075c2"]}`))
	f.Add([]byte(`{"op":"serde.encode","value":{"type":"tensor","data":{"dtype":"bool","shape":[3],"xof":"s"}},"threshold":0}`))
	f.Add([]byte(`{"op":"address_item","address":1,"id":2,"signature":[1,2,3]}`))
	f.Add([]byte(`{"op":"request.encode","request":{"prompt_token_ids":[1],"sampling_params":{"temperature":0.5,"extra_args":{"$map":[[1,{"$bytes":"00"}]]}}}}`))
	f.Add([]byte(`{"op":"request.decode","generation":"0.11.0","frames":["9fa57265712d3193010203c0de0003a473746f7090ae73746f705f746f6b656e5f69647390a96261645f776f72647390c0c0cb3ff4000000000000c0c0c0c0000000c0"]}`))
	f.Add([]byte(`{"op":"outputs.decode","frames":["990091dc0012a1729102c0c0c000a178c0c0c0c0c0c000c0c0c0c0c0cb3ff8000000000000c091a172c0c0c0"]}`))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, in []byte) {
		a := New()
		a.dir, a.maxSegment, a.maxData = dir, 1<<20, 1<<16
		for _, line := range bytes.Split(in, []byte("\n")) {
			var out map[string]any
			require.NoError(t, json.Unmarshal(a.Do(line), &out))
			require.Contains(t, out, "ok")
			if e, ok := out["error"].(map[string]any); ok {
				require.NotContains(t, e["text"], "internal error")
			}
		}
		require.NoError(t, a.Close())
		// What was detached stays until it is swept.
		detached, err := filepath.Glob(filepath.Join(dir, "*.ctl"))
		require.NoError(t, err)
		for _, path := range detached {
			_, err := segment.Sweep(segment.SweepOptions{
				Dir: dir, Prefix: strings.TrimSuffix(filepath.Base(path), ".ctl"), AnyOwner: true, Remove: true,
			})
			require.NoError(t, err)
		}
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, left)
	})
}
