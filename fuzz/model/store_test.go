package model_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/generate"
	"github.com/ringcache/ringcache/fuzz/model"
)

// goldenStores are random operations on real vLLM storages, one writer and several readers.
type goldenStores struct {
	Releases []string
	Data     []struct {
		Image   string `json:"ring_sha256"`
		Seed    int
		N       int
		Max     int                  `json:"max_object_size"`
		Readers int                  `json:"n_readers"`
		Rows    [][5]json.RawMessage // operation, result, [start, end, id_start, id_end], [[id, uses, reads]], touched
	}
}

// TestGoldenStores replays what vLLM did with the model, for every release, also 0.11.0 with
// its defects.
func TestGoldenStores(t *testing.T) {
	paths, err := filepath.Glob("../../testdata/golden/storage_traces.*.json")
	require.NoError(t, err)
	require.Len(t, paths, 4)
	for _, path := range paths {
		var f goldenStores
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, &f))
		for _, version := range f.Releases {
			t.Run(version, func(t *testing.T) {
				rows := 0
				for _, trace := range f.Data {
					r := newGoldenStore(t, version, trace.N, trace.Max, trace.Readers)
					for i, row := range trace.Rows {
						at := fmt.Sprintf("seed %d row %d %s", trace.Seed, i, row[0])
						r.replay(row, at)
						rows++
					}
					require.Equal(t, trace.Image, r.image(trace.N), "seed %d: bytes of the ring", trace.Seed)
				}
				t.Logf("%d traces, %d operations", len(f.Data), rows)
			})
		}
	}
}

type goldenStore struct {
	t       *testing.T
	release model.Release
	system  *model.Store
	signed  map[string]string // signatures of handles that were issued
}

func newGoldenStore(t *testing.T, version string, size, maxObject, readers int) *goldenStore {
	release, err := model.Lookup(version)
	require.NoError(t, err)
	g := &goldenStore{t, release, model.NewStore(release, model.StoreOptions{}), map[string]string{}}
	common := map[string]any{"name": "segment", "size": size, "max_object": maxObject, "readers": readers}
	g.must("store.create", "w", common)
	for i := range readers {
		common["lock"] = "lock"
		g.must("store.open", reader(i), common)
	}
	return g
}

func reader(i int) string { return "r" + strconv.Itoa(i) }

func (g *goldenStore) do(name, store string, args map[string]any) fuzz.Reply {
	out := map[string]any{"store": store}
	for k, v := range args {
		out[k] = v
	}
	replies, err := g.system.Do([]fuzz.Op{{Name: name, Args: out}})
	require.NoError(g.t, err)
	require.Len(g.t, replies, 1)
	return replies[0]
}

func (g *goldenStore) must(name, store string, args map[string]any) fuzz.Reply {
	r := g.do(name, store, args)
	require.Empty(g.t, r.Kind, "%s: %s", name, r)
	return r
}

func (g *goldenStore) image(size int) string {
	offset := 0
	if g.release.Signed {
		offset = 32
	}
	text, _ := g.must("store.peek", "w", map[string]any{"offset": offset, "length": size}).Fields["hex"].(string)
	ring, err := hex.DecodeString(text)
	require.NoError(g.t, err)
	sum := sha256.Sum256(ring)
	return hex.EncodeToString(sum[:])
}

func (g *goldenStore) replay(row [5]json.RawMessage, at string) {
	var op []any
	require.NoError(g.t, json.Unmarshal(row[0], &op))
	if !g.release.Signed && op[0] == "Z" {
		return // no signature to forge
	}
	reply := g.perform(op)
	var failed struct{ Err, Msg string }
	if json.Unmarshal(row[1], &failed) == nil && failed.Err != "" {
		require.Equal(g.t, failed.Msg, reply.Upstream, at)
	} else {
		require.Empty(g.t, reply.Kind, "%s: %s", at, reply)
		g.result(op, row[1], reply, at)
	}
	g.state(row, at)
}

// result compares what an operation returned.
func (g *goldenStore) result(op []any, want json.RawMessage, reply fuzz.Reply, at string) {
	switch op[0] {
	case "p", "g":
		var h [2]int64
		require.NoError(g.t, json.Unmarshal(want, &h))
		require.EqualValues(g.t, h[0], reply.Fields["address"], at)
		require.EqualValues(g.t, h[1], reply.Fields["id"], at)
		signature, _ := reply.Fields["signature"].(string)
		g.signed[fmt.Sprint(op[1], h)] = signature
	case "q":
		require.Equal(g.t, string(want), fmt.Sprint(reply.Fields["cached"]), at)
	case "R", "TR", "Z":
		var v struct {
			T string
			N int
			B *byte
		}
		require.NoError(g.t, json.Unmarshal(want, &v))
		var b byte
		if v.B != nil {
			b = *v.B
		}
		shown, _ := reply.Fields["value"].(map[string]any)
		if v.T == "bytes" {
			require.Equal(g.t, pickled(v.N, b), shown, at)
		} else {
			require.EqualValues(g.t, []any{int64(v.N)}, shown["data"].(map[string]any)["shape"], at)
		}
	}
}

func (g *goldenStore) perform(op []any) fuzz.Reply {
	key := func(i int) map[string]any { return map[string]any{"key": op[i]} }
	switch op[0] {
	case "p":
		n, b := int(op[3].(float64)), byte(op[4].(float64))
		value := pickled(n, b)
		if op[2] == "u" {
			data := map[string]any{"dtype": "uint8", "shape": []any{n},
				"hex": hex.EncodeToString(bytes.Repeat([]byte{b}, n))}
			value = map[string]any{"type": "tensor", "data": data}
		}
		return g.do("store.put", "w", map[string]any{"key": op[1], "value": value})
	case "g":
		return g.do("store.lookup", "w", key(1))
	case "q":
		return g.do("store.cached", "w", key(1))
	case "t":
		return g.do("store.touch", "w", key(1))
	case "r":
		return g.do("store.release_touches", "w", nil)
	case "x":
		return g.do("store.free_unused", "w", nil)
	case "c":
		return g.do("store.clear", "w", nil)
	}
	handle := map[string]any{"key": op[2], "address": op[3], "id": op[4]}
	if g.release.Signed {
		handle["signature"] = g.signed[fmt.Sprint(op[2], [2]int64{int64(op[3].(float64)), int64(op[4].(float64))})]
	}
	if op[0] == "Z" {
		s, err := hex.DecodeString(handle["signature"].(string))
		require.NoError(g.t, err)
		s[0] ^= 1
		handle["signature"] = hex.EncodeToString(s)
	}
	name := reader(int(op[1].(float64)))
	if op[0] == "T" || op[0] == "TR" {
		if r := g.do("store.touch", name, handle); op[0] == "T" || r.Kind != "" {
			return r
		}
	}
	return g.do("store.get", name, handle)
}

func (g *goldenStore) state(row [5]json.RawMessage, at string) {
	state := g.must("store.state", "w", nil).Fields
	var ring [4]int64
	require.NoError(g.t, json.Unmarshal(row[2], &ring))
	for i, field := range []string{"start", "end", "id_start", "id_end"} {
		require.EqualValues(g.t, ring[i], state["ring"].(map[string]any)[field], "%s: %s", at, field)
	}
	var live [][3]*int64
	require.NoError(g.t, json.Unmarshal(row[3], &live))
	require.Len(g.t, state["writer_flag"], len(live), at)
	for _, o := range live {
		id := strconv.FormatInt(*o[0], 10)
		require.Equal(g.t, *o[1], state["writer_flag"].(map[string]any)[id], at)
		if o[2] != nil {
			require.Equal(g.t, *o[2], state["reader_flag"].(map[string]any)[id], at)
		}
	}
	if string(row[4]) != "null" {
		var touched []uint32
		require.NoError(g.t, json.Unmarshal(row[4], &touched))
		require.ElementsMatch(g.t, touched, state["touched"], at)
	}
}

// pickled is Python's pickle of n bytes b, fewer than 64 KiB, as a value of the agent.
func pickled(n int, b byte) map[string]any {
	body := []byte{'C', byte(n)}
	if n > 255 {
		body = binary.LittleEndian.AppendUint32([]byte{'B'}, uint32(n))
	}
	body = append(append(body, bytes.Repeat([]byte{b}, n)...), 0x94, '.')
	out := binary.LittleEndian.AppendUint64([]byte{0x80, 5, 0x95}, uint64(len(body)))
	return map[string]any{"type": "pickle", "hex": hex.EncodeToString(append(out, body...))}
}

// TestFirstReleasePutsBeyondTheRing: the sequence of a seed, in which the real 0.11.0 raised an error behind
// the allocation.
func TestFirstReleasePutsBeyondTheRing(t *testing.T) {
	for version, beyond := range map[string]bool{"0.11.0": true, "0.11.2": false} {
		found := false
		generator := generate.Store(generate.StoreOptions{Generation: version, Lock: "readers", Segment: "objects"})
		ops, replies, err := fuzz.Run(model.NewStore(release(t, version), model.StoreOptions{}),
			generator(fuzz.FromSeed(425), 200))
		require.NoError(t, err)
		for i, r := range replies {
			found = found || ops[i].Name == "store.put" && r.Kind == "corrupt"
		}
		require.Equal(t, beyond, found, version)
	}
}
