package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/shmfile"
)

const poolItem = `{"type":"item","fields":[{"name":"x","data":{"dtype":"uint8","shape":[300],"xof":"x"},"field":{"kind":"batched"}}]}`

func poolTalker(t *testing.T, more string) (k *talker, name string) {
	k = newTalker(t)
	out := k.ok(`{"op":"store.create","store":"w","size":8192,"max_object":4096,"readers":1,"policy":"pool"` + more + `}`)
	return k, out["name"].(string)
}

// state compares the uses in a pool's state.
func (k *talker) state(leases, quarantined, objects int) {
	k.t.Helper()
	out := k.ok(`{"op":"store.state","store":"w"}`, "leases", fmt.Sprint(leases), "quarantined", fmt.Sprint(quarantined))
	require.Len(k.t, out["key_index"], objects)
	require.NotContains(k.t, out, "ring")
}

func TestRequestsOfAPool(t *testing.T) {
	k, name := poolTalker(t, "")
	put := func(key, request string) {
		t.Helper()
		k.ok(fmt.Sprintf(`{"op":"store.put","store":"w","key":%q,"request":%q,"value":%s}`, key, request, poolItem))
	}
	request := func(op, id string) string { return fmt.Sprintf(`{"op":"store.%s","store":"w","request":%q}`, op, id) }

	k.refuses("invalid", request("commit", "r1"), `request "r1" was not begun, or has ended`)
	k.refuses("invalid", `{"op":"store.put","store":"w","key":"a","request":"r1","value":`+poolItem+`}`, `request "r1" was not begun, or has ended`)
	k.ok(request("begin", "r1"))
	k.refuses("invalid", request("begin", "r1"), `request "r1"`)
	put("a", "r1")
	k.state(1, 0, 1)
	k.ok(`{"op":"store.evict","store":"w","key":"a"}`, "evicted", "false")
	k.refuses("invalid", `{"op":"store.clear","store":"w"}`, "1 leases")
	k.refuses("invalid", request("finish", "r1"), `request "r1": rollback is for requests that were not committed`) // it was not sent
	k.ok(request("commit", "r1"))
	k.refuses("invalid", request("rollback", "r1"), `request "r1": rollback is for requests that were not committed`)
	k.refuses("invalid", `{"op":"store.lookup","store":"w","key":"a","request":"r1"}`, "r1 was committed")
	k.ok(request("finish", "r1"))
	k.refuses("invalid", request("finish", "r1"), `request "r1" was not begun, or has ended`)
	k.state(0, 0, 1)

	k.ok(request("begin", "r2"))
	k.ok(`{"op":"store.lookup","store":"w","key":"a","request":"r2"}`)
	k.ok(request("commit", "r2"))
	k.ok(request("abort", "r2"))
	k.state(0, 1, 1)
	k.ok(`{"op":"store.fence","store":"w"}`)
	k.state(0, 0, 1)

	k.ok(request("begin", "r3"))
	k.ok(`{"op":"store.reserve","store":"w","key":"b","request":"r3","value":` + poolItem + `}`)
	k.ok(`{"op":"store.publish","store":"w","key":"b"}`)
	k.ok(request("commit", "r3"))
	k.ok(request("begin", "r4"))
	k.ok(`{"op":"store.lookup","store":"w","key":"b","request":"r4"}`)
	k.state(2, 0, 2)
	k.ok(`{"op":"store.reset_readers","store":"w","readers":2}`)
	k.state(1, 0, 2) // what was not sent goes on
	k.refuses("invalid", request("finish", "r3"), `request "r3" was not begun, or has ended`)
	k.ok(request("rollback", "r4"))
	k.state(0, 0, 2)

	// Without a request the counts decide.
	k.ok(`{"op":"store.lookup","store":"w","key":"a"}`)
	k.state(0, 1, 2)
	k.ok(`{"op":"store.fence","store":"w"}`)
	k.ok(`{"op":"store.evict","store":"w","key":"a"}`, "evicted", "true")
	k.ok(`{"op":"store.free_unused","store":"w"}`, "freed", "[1]")
	k.ok(`{"op":"store.state","store":"w"}`, "used_bytes", "0")
	k.refuses("too_large", `{"op":"store.put","store":"w","key":"c","value":{"type":"tensor","data":{"dtype":"uint8","shape":[5000],"xof":"x"}}}`, "5051 bytes")
	k.ok(request("begin", "left open"))
	put("d", "left open")
	require.FileExists(t, filepath.Join(shmfile.DefaultDir, name))
	k.ok(`{"op":"store.close","store":"w"}`)
	require.NoFileExists(t, filepath.Join(shmfile.DefaultDir, name))
	require.NoFileExists(t, filepath.Join(shmfile.DefaultDir, name+".ctl"))
}

// TestPublishThatFailsKeepsTheReservation: it was forgotten, so that nothing could end it, the
// store could not be closed, and the segment stayed after the agent.
func TestPublishThatFailsKeepsTheReservation(t *testing.T) {
	k, name := poolTalker(t, "")
	k.ok(`{"op":"store.begin","store":"w","request":"r"}`)
	k.ok(`{"op":"store.reserve","store":"w","key":"a","request":"r","value":` + poolItem + `}`)
	k.ok(`{"op":"store.commit","store":"w","request":"r"}`)
	k.refuses("invalid", `{"op":"store.publish","store":"w","key":"a"}`, "r was committed")
	k.ok(`{"op":"store.discard","store":"w","key":"a"}`)
	k.ok(`{"op":"store.begin","store":"w","request":"s"}`)
	k.ok(`{"op":"store.reserve","store":"w","key":"a","request":"s","value":` + poolItem + `}`)
	k.ok(`{"op":"store.commit","store":"w","request":"s"}`)
	k.refuses("invalid", `{"op":"store.publish","store":"w","key":"a"}`, "s was committed")
	k.ok(`{"op":"store.close","store":"w"}`)
	require.NoFileExists(t, filepath.Join(shmfile.DefaultDir, name))
}

func TestDetachAndAdopt(t *testing.T) {
	k, name := poolTalker(t, `,"owner":"me","rereads":true,"quarantine_ttl":-1,"max_objects":3,"quota":4000`)
	adopt := fmt.Sprintf(`{"op":"store.adopt","store":"w2","name":%q,"size":8192,"max_object":4096,"readers":1}`, name)
	h := k.ok(`{"op":"store.put","store":"w","key":"a","value":` + poolItem + `}`)
	k.ok(`{"op":"store.begin","store":"w","request":"r"}`)
	for i := range 3 {
		k.do(fmt.Sprintf(`{"op":"store.put","store":"w","key":"k%d","request":"r","tenant":"t","value":%s}`, i, poolItem))
	}
	k.refuses("full", `{"op":"store.put","store":"w","key":"more","request":"r","value":`+poolItem+`}`, "492 bytes")
	k.ok(`{"op":"store.rollback","store":"w","request":"r"}`)
	k.refuses("exists_segment", adopt, name)
	k.refuses("exists_segment", fmt.Sprintf(`{"op":"store.create","store":"w3","name":%q,"size":8192,"max_object":4096,"readers":1}`, name), name)
	k.ok(`{"op":"store.detach","store":"w"}`)
	require.FileExists(t, filepath.Join(shmfile.DefaultDir, name))
	k.refuses("unsupported", adopt[:len(adopt)-1]+`,"policy":"fifo"}`, `policy "fifo" has no table of objects to adopt`)
	out := k.ok(adopt, "kept", "3", "dropped", "0", "in_use", "1")
	require.NotContains(t, out, "error")
	again := k.ok(`{"op":"store.signature","store":"w2","key":"a"}`)
	require.Equal(t, h["signature"], again["signature"], "handles stay good")
	k.ok(`{"op":"store.close","store":"w2"}`)
	k.refuses("not_found", adopt, name)
	left, err := filepath.Glob(filepath.Join(shmfile.DefaultDir, name+"*"))
	require.NoError(t, err)
	require.Empty(t, left)

	// A segment that something else made.
	require.NoError(t, os.WriteFile(filepath.Join(shmfile.DefaultDir, name), make([]byte, 8192+32), 0o600))
	defer os.Remove(filepath.Join(shmfile.DefaultDir, name))
	k.refuses("unsupported", adopt, name)
}

func TestPoolOperationsOnAFifoStore(t *testing.T) {
	k := newTalker(t)
	k.ok(`{"op":"store.create","store":"w","size":4000,"max_object":1000,"readers":1}`)
	k.ok(`{"op":"store.put","store":"w","key":"a","request":"never begun","value":` + poolItem + `}`)
	k.ok(`{"op":"store.begin","store":"w","request":"r"}`)
	k.ok(`{"op":"store.lookup","store":"w","key":"a","request":"r"}`)
	k.ok(`{"op":"store.commit","store":"w","request":"r"}`)
	k.ok(`{"op":"store.abort","store":"w","request":"r"}`)
	k.ok(`{"op":"store.fence","store":"w"}`)
	k.refuses("invalid", `{"op":"store.evict","store":"w","key":"a"}`, "FIFO")
	k.ok(`{"op":"store.reset_readers","store":"w"}`)
	k.ok(`{"op":"store.free_unused","store":"w"}`, "freed", "[0]")
	k.refuses("unsupported", `{"op":"store.create","store":"x","size":4000,"max_object":1000,"readers":1,"policy":"lifo"}`, `policy "lifo"`)
}
