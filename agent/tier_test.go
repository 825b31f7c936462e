//go:build linux

package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// tiers opens a segment, a folder and a store over both.
func (k *talker) tiers(t *testing.T) (name, root string) {
	name, root = fmt.Sprintf("ringcache-test-tier-%d", os.Getpid()), t.TempDir()
	k.a.dir = t.TempDir()
	k.ok(`{"op":"tier.open","tier":"m","level":"shm:` + name + `","size":65536}`)
	k.ok(`{"op":"tier.open","tier":"d","level":"` + root + `"}`)
	k.ok(`{"op":"tier.open","tier":"s","memory":"m","lower":[{"tier":"d"}]}`)
	return name, root
}

func TestTierFamily(t *testing.T) {
	k := newTalker(t)
	name, root := k.tiers(t)
	const a, b = `{"space":"s","name":"a"}`, `{"space":"s","name":"b"}`
	k.ok(`{"op":"tier.put","tier":"s","object":{"space":"s","name":"a","tenant":"t","seconds":0.5,"note":"6e"},"hex":"010203"}`)
	k.refuses("invalid", `{"op":"tier.put","tier":"s","object":{"space":"s","name":"b","size":5},"hex":"010203"}`, "3 bytes")
	k.refuses("invalid", `{"op":"tier.put","tier":"s","object":{"space":"s","name":"b"}}`, `"xof"`)
	k.refuses("too_large", `{"op":"tier.put","tier":"m","object":{"space":"s","name":"b","size":100000},"xof":"x"}`, `"b"`)
	k.ok(`{"op":"tier.get","tier":"s","key":`+a+`}`, "hex", `"010203"`, "note", `"6e"`, "tenant", `"t"`, "seconds", `0.5`, "size", `3`)
	k.refuses("not_found", `{"op":"tier.get","tier":"s","key":`+b+`}`, `"b"`)
	out := k.ok(`{"op":"tier.stat","tier":"s","keys":[` + b + `,` + a + `]}`)
	found := out["objects"].([]any)
	require.Equal(t, "not_found", found[0].(map[string]any)["error"].(map[string]any)["kind"])
	require.Equal(t, []any{"memory", "disk"}, found[1].(map[string]any)["levels"], "written through")
	require.Contains(t, k.ok(`{"op":"tier.usage","tier":"m"}`, "objects", `1`)["tenants"], "t")
	k.refuses("unsupported", `{"op":"tier.usage","tier":"s"}`, "levels")

	// A lease: reserved, filled, committed, pinned; what is only on disk is pending first.
	k.ok(`{"op":"tier.lease","tier":"s","lease":"l","owner":"me","seconds":1000}`)
	k.ok(`{"op":"tier.reserve","tier":"s","lease":"l","objects":[{"space":"s","name":"b","size":1000,"parent":"a"}],"xof":"seed"}`)
	k.refuses("not_found", `{"op":"tier.get","tier":"m","key":{"space":"s","name":"c"}}`, `"c"`)
	k.ok(`{"op":"tier.commit","tier":"s","lease":"l","keys":[`+b+`]}`, "errors", `[null]`)
	again := k.ok(`{"op":"tier.commit","tier":"s","lease":"l","keys":[` + b + `]}`)["errors"].([]any)[0].(map[string]any)
	require.Equal(t, "not_found", again["kind"], "there is nothing to commit any more")
	pinned := k.ok(`{"op":"tier.pin","tier":"s","lease":"l","keys":[` + b + `]}`)["objects"].([]any)[0].(map[string]any)
	require.Equal(t, k.ok(`{"op":"tier.get","tier":"s","key":` + b + `}`)["sha256"], pinned["sha256"])
	leases := k.ok(`{"op":"tier.leases","tier":"s"}`, "segment", `"`+name+`"`)["leases"].([]any)
	require.Len(t, leases, 1)
	require.Equal(t, "me", leases[0].(map[string]any)["owner"])
	require.Equal(t, "in_use", k.ok(`{"op":"tier.delete","tier":"s","keys":[` + b + `]}`)["errors"].([]any)[0].(map[string]any)["kind"])
	k.ok(`{"op":"tier.unpin","tier":"s","lease":"l","keys":[` + b + `]}`)
	k.ok(`{"op":"tier.reserve","tier":"s","lease":"l","objects":[{"space":"s","name":"c","size":10}]}`)
	k.ok(`{"op":"tier.abort","tier":"s","lease":"l","keys":[{"space":"s","name":"c"}]}`, "errors", `[null]`)
	k.ok(`{"op":"tier.release","tier":"s","lease":"l"}`)
	k.refuses("invalid", `{"op":"tier.pin","tier":"s","lease":"l","keys":[]}`, `lease "l"`)
	k.ok(`{"op":"tier.drain","tier":"s"}`)
	require.Len(t, k.ok(`{"op":"tier.list","tier":"d","space":"s"}`)["objects"], 2)
	k.ok(`{"op":"tier.delete","tier":"s","keys":[`+b+`]}`, "errors", `[null]`)
	require.Len(t, k.ok(`{"op":"tier.list","tier":"d"}`)["objects"], 1)

	// The store is above its levels.
	k.refuses("invalid", `{"op":"tier.close","tier":"m"}`, "store")
	k.refuses("invalid", `{"op":"tier.open","tier":"s2","memory":"m"}`, "another store")
	k.ok(`{"op":"tier.close","tier":"s"}`)
	k.ok(`{"op":"tier.close","tier":"m"}`)
	k.ok(`{"op":"tier.close","tier":"d"}`)
	require.FileExists(t, filepath.Join(k.a.dir, name), "a level outlives who serves it")

	// What is there again: the folder, the segment, and a tree of vLLM's.
	k.ok(`{"op":"tier.open","tier":"m","level":"shm:` + name + `","size":65536}`)
	k.ok(`{"op":"tier.get","tier":"m","key":`+a+`}`, "hex", `"010203"`)
	k.ok(`{"op":"tier.open","tier":"d","level":"` + root + `"}`)
	k.ok(`{"op":"tier.get","tier":"d","key":`+a+`}`, "hex", `"010203"`)
	tree := t.TempDir()
	k.ok(`{"op":"tier.open","tier":"v","level":"` + tree + `?layout=vllm-ec&space=x"}`)
	k.ok(`{"op":"tier.put","tier":"v","object":{"space":"x","name":"h","note":"666c6f617433322031"},"hex":"00000000"}`) // float32 1
	require.FileExists(t, filepath.Join(tree, "h", "encoder_cache.safetensors"))
}

func TestTierRefusals(t *testing.T) {
	k := newTalker(t)
	k.a.dir = t.TempDir()
	k.refuses("invalid", `{"op":"tier.open","tier":"x","level":"shm:"}`, "no name")
	k.refuses("invalid", `{"op":"tier.open","tier":"x"}`, "memory")
	k.refuses("invalid", `{"op":"tier.open","tier":"x","memory":"none"}`, `"none"`)
	k.refuses("invalid", `{"op":"tier.open","tier":"x","level":"`+t.TempDir()+`?layout=flat"}`, "vllm-ec")
	k.refuses("invalid", `{"op":"tier.open","tier":"x","level":"http://a"}`, "rediss")
	k.refuses("invalid", `{"op":"tier.open","tier":"x","level":"shm:a/b","size":65536}`, "a/b")
	k.refuses("invalid", `{"op":"tier.get","tier":"x","key":{"space":"s","name":"a"}}`, `no tier "x"`)
	k.ok(`{"op":"tier.open","tier":"d","level":"` + t.TempDir() + `"}`)
	k.refuses("invalid", `{"op":"tier.open","tier":"d","level":"x"}`, "exists")
	k.refuses("unsupported", `{"op":"tier.lease","tier":"d","lease":"l"}`, "memory")
	k.refuses("unsupported", `{"op":"tier.drain","tier":"d"}`, "store")
	k.refuses("invalid", `{"op":"tier.put","tier":"d","object":{"space":"s","name":"a","size":-1},"xof":"x"}`, "-1")
	k.refuses("invalid", `{"op":"tier.put","tier":"d","object":{"space":"s","name":"a","colour":1},"hex":""}`, "colour")
	k.refuses("invalid", `{"op":"tier.put","tier":"d","object":{"space":"s","name":""},"hex":""}`, "empty")
}
