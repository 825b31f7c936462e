package agent

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/goldentest"
	"github.com/ringcache/ringcache/internal/shmfile"
	"github.com/ringcache/ringcache/shmring/segment"
)

func TestMain(m *testing.M) { os.Exit(goldentest.ReadOnlyTable(m).Run()) }

// talker sends requests to one agent.
type talker struct {
	t testing.TB
	a *Agent
}

func newTalker(t testing.TB) *talker {
	a := New()
	t.Cleanup(func() { require.NoError(t, a.Close()) })
	return &talker{t, a}
}

func (k *talker) do(line string) map[string]any {
	k.t.Helper()
	var out map[string]any
	d := json.NewDecoder(bytes.NewReader(k.a.Do([]byte(line))))
	d.UseNumber()
	require.NoError(k.t, d.Decode(&out))
	return out
}

// ok sends a request that must succeed and compares the JSON of some fields.
func (k *talker) ok(line string, want ...string) map[string]any {
	k.t.Helper()
	out := k.do(line)
	require.Equal(k.t, true, out["ok"], "%s: %v", line, out["error"])
	for i := 0; i < len(want); i += 2 {
		got, err := json.Marshal(out[want[i]])
		require.NoError(k.t, err)
		require.JSONEq(k.t, want[i+1], string(got), "%s: %s", line, want[i])
	}
	return out
}

// fails sends a request that must fail with a kind and, if given, a text.
func (k *talker) fails(kind, line string, upstream ...string) {
	k.t.Helper()
	out := k.do(line)
	require.Equal(k.t, false, out["ok"], line)
	e := out["error"].(map[string]any)
	require.Equal(k.t, kind, e["kind"], "%s: %v", line, e["text"])
	require.NotEmpty(k.t, e["text"])
	if len(upstream) > 0 {
		require.Equal(k.t, upstream[0], e["upstream"], line)
	}
}

func TestRingFamily(t *testing.T) {
	k := newTalker(t)
	k.ok(`{"op":"ring.new","ring":"r","size":100}`)
	k.fails("invalid", `{"op":"ring.new","ring":"r","size":100}`)
	k.ok(`{"op":"ring.alloc","ring":"r","size":20}`, "address", `0`, "id", `0`)
	k.ok(`{"op":"ring.alloc","ring":"r","size":30}`, "address", `28`, "id", `1`)
	k.ok(`{"op":"ring.header","ring":"r","address":28}`, "id", `1`, "size", `38`)
	k.fails("full", `{"op":"ring.alloc","ring":"r","size":30}`, "Not enough space in the data buffer, try calling free_buf() to free up space")
	k.fails("full", `{"op":"ring.alloc","ring":"r","size":3000}`)
	k.fails("invalid", `{"op":"ring.alloc","ring":"r","size":0}`)
	k.fails("invalid", `{"op":"ring.alloc","ring":"r","size":-1}`)
	k.ok(`{"op":"ring.free","ring":"r","ids":[1]}`, "freed", `[]`)
	k.ok(`{"op":"ring.free","ring":"r","all":true,"limit":0}`, "freed", `[]`)
	k.ok(`{"op":"ring.free","ring":"r","ids":[0,7],"limit":null}`, "freed", `[0]`)
	k.ok(`{"op":"ring.state","ring":"r"}`, "start", `28`, "end", `66`, "id_start", `1`, "id_end", `2`, "metadata", `{"1":28}`)
	k.ok(`{"op":"ring.clear","ring":"r"}`)
	k.ok(`{"op":"ring.state","ring":"r"}`, "start", `0`, "id_start", `2`)
	k.fails("corrupt", `{"op":"ring.header","ring":"r","address":97}`)
	k.ok(`{"op":"ring.close","ring":"r"}`)
	k.fails("invalid", `{"op":"ring.state","ring":"r"}`)

	k.ok(`{"op":"ring.new","ring":"old","size":100,"generation":"0.31.0","first_id":2147483647}`)
	k.ok(`{"op":"ring.alloc","ring":"old","size":1}`, "id", `2147483647`)
	k.ok(`{"op":"ring.alloc","ring":"old","size":1}`, "id", `0`)
	k.ok(`{"op":"ring.clear","ring":"old"}`)
	k.ok(`{"op":"ring.state","ring":"old"}`, "id_end", `0`)
	k.fails("unsupported", `{"op":"ring.new","ring":"x","size":100,"generation":"9.9.9"}`)
	k.fails("invalid", `{"op":"ring.new","ring":"x","size":100,"first_id":2147483648}`)
	k.fails("invalid", `{"op":"ring.new","ring":"x","size":4}`)
	k.fails("invalid", `{"op":"ring.new","ring":"x","size":1000000000000}`)

	name := fmt.Sprintf("ringcache-test-agent-%d", os.Getpid())
	k.ok(`{"op":"ring.new","ring":"named","size":100,"name":"` + name + `"}`)
	k.fails("exists_segment", `{"op":"ring.new","ring":"again","size":100,"name":"`+name+`"}`)
	k.fails("no_space", `{"op":"ring.new","ring":"big","size":1125899906842624,"name":"`+name+`2"}`)
	require.FileExists(t, filepath.Join(shmfile.DefaultDir, name))
	k.ok(`{"op":"ring.close","ring":"named"}`)
	require.NoFileExists(t, filepath.Join(shmfile.DefaultDir, name))
}

const (
	goldenSecret = `"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"`
	pickleA      = `{"type":"pickle","hex":"80059507000000000000004303414141942e"}` // b"AAA"
)

func TestStoreFamily(t *testing.T) {
	k := newTalker(t)
	name := fmt.Sprintf("ringcache-test-agent-%d", os.Getpid())
	k.ok(`{"op":"store.create","store":"w","size":200,"max_object":120,"readers":1,"name":"`+name+`","secret":`+goldenSecret+`}`,
		"name", `"`+name+`"`, "segment_bytes", `232`)
	k.fails("exists_segment", `{"op":"store.create","store":"w2","size":200,"max_object":120,"readers":1,"name":"`+name+`"}`)
	k.fails("invalid", `{"op":"store.create","store":"w","size":200,"max_object":120,"readers":1}`)
	k.fails("unsupported", `{"op":"store.create","store":"w2","size":200,"max_object":120,"readers":1,"policy":"nope"}`)
	k.fails("invalid", `{"op":"store.create","store":"w2","size":200,"max_object":120,"readers":1,"secret":"00"}`)

	const sig = "c715cc92abcdd866e95d1904798121958bf490ba2906e6b2a95fd57698bc9e71" // golden ring_images
	k.ok(`{"op":"store.put","store":"w","key":"a","value":`+pickleA+`}`, "address", `0`, "id", `0`, "signature", `"`+sig+`"`)
	k.fails("exists", `{"op":"store.put","store":"w","key":"a","value":`+pickleA+`}`, "Key 'a' already exists in the storage.")
	k.fails("too_large", `{"op":"store.put","store":"w","key":"b","value":{"type":"pickle","hex":"`+strings.Repeat("00", 121)+`"}}`,
		"Serialized object size (150 bytes) exceeds max object size (120 bytes)")
	k.ok(`{"op":"store.cached","store":"w","key":"a"}`, "cached", `true`)
	k.ok(`{"op":"store.cached","store":"w","key":"b"}`, "cached", `false`)
	k.ok(`{"op":"store.lookup","store":"w","key":"a","request":"r1"}`, "address", `0`, "signature", `"`+sig+`"`)
	k.fails("not_found", `{"op":"store.lookup","store":"w","key":"b"}`, "'b'")
	k.ok(`{"op":"store.signature","store":"w","key":"a"}`, "signature", `"`+sig+`"`)
	k.fails("not_found", `{"op":"store.signature","store":"w","key":"b"}`)
	list, err := json.Marshal(intsOf(sig))
	require.NoError(t, err)
	k.ok(`{"op":"store.verify","store":"w","key":"a","address":0,"id":0,"signature":"` + sig + `"}`)
	k.ok(`{"op":"store.verify","store":"w","key":"a","address":0,"id":0,"signature":` + string(list) + `}`)
	for _, bad := range []string{`"00"`, `"zz"`, `[1,2]`, `[256]`, `[-1]`, `[1.5]`, `[true]`, `[null]`, `7`, `{}`, `""`, `[]`} {
		k.fails("bad_signature", `{"op":"store.verify","store":"w","key":"a","address":0,"id":0,"signature":`+bad+`}`, "Invalid SHM handle signature for cache key.")
	}
	k.fails("bad_signature", `{"op":"store.verify","store":"w","key":"a","address":0,"id":0,"signature":null}`, "Missing SHM handle signature for cache key.")

	k.ok(`{"op":"store.open","store":"r","name":"` + name + `","size":200,"max_object":120,"readers":1}`)
	k.ok(`{"op":"store.get","store":"r","address":0,"id":0,"key":"a","signature":"`+sig+`"}`, "value", pickleA)
	k.fails("bad_signature", `{"op":"store.get","store":"r","address":0,"id":0,"signature":"`+sig+`"}`, "Missing SHM handle signature for cache key.")
	k.fails("bad_signature", `{"op":"store.get","store":"r","address":0,"id":0,"key":"b","signature":"`+sig+`"}`)
	k.ok(`{"op":"store.verify","store":"r","key":"a","address":0,"id":0,"signature":"` + sig + `"}`)
	k.ok(`{"op":"store.touch","store":"r","key":"a","address":0,"id":0,"signature":"` + sig + `"}`)
	k.ok(`{"op":"store.get","store":"w","address":0,"id":0}`, "value", pickleA)
	k.fails("stale", `{"op":"store.get","store":"w","address":0,"id":1}`, "Data for address:id '0:1' has been modified or is invalid.")
	k.fails("unsupported", `{"op":"store.clear","store":"r"}`)
	k.fails("unsupported", `{"op":"store.unlink","store":"r"}`)
	k.ok(`{"op":"store.touch","store":"w","key":"a"}`)
	k.ok(`{"op":"store.state","store":"w"}`, "key_index", `{"a":[0,0]}`, "writer_flag", `{"0":2}`, "reader_flag", `{"0":0}`, "touched", `[0]`,
		"used_bytes", `55`, "ring", `{"start":0,"end":55,"id_start":0,"id_end":1,"metadata":{"0":0}}`)
	k.ok(`{"op":"store.release_touches","store":"w"}`)
	k.ok(`{"op":"store.free_unused","store":"w"}`, "freed", `[]`)
	k.ok(`{"op":"store.peek","store":"w","offset":32,"length":12}`, "hex", `"000000003700000000000000"`)
	k.fails("invalid", `{"op":"store.peek","store":"w","offset":232,"length":1}`)
	k.fails("invalid", `{"op":"store.peek","store":"w","offset":-1,"length":1}`)
	k.ok(`{"op":"store.clear","store":"w"}`)
	k.ok(`{"op":"store.close","store":"r"}`)
	k.fails("closed", `{"op":"store.get","store":"r","address":0,"id":0,"key":"a","signature":"`+sig+`"}`)
	k.ok(`{"op":"store.unlink","store":"w"}`)
	k.fails("not_found", `{"op":"store.open","store":"r2","name":"`+name+`","size":200,"max_object":120,"readers":1}`)
	k.ok(`{"op":"store.close","store":"w"}`)
	k.ok(`{"op":"store.close","store":"w"}`)
	k.ok(`{"op":"store.unlink","store":"w"}`)
	k.fails("closed", `{"op":"store.state","store":"w"}`)
	k.ok(`{"op":"store.create","store":"w","size":200,"max_object":120,"readers":1}`)
	k.fails("not_found", `{"op":"store.open","store":"r2","name":"x","size":200,"max_object":1,"readers":1,"lock":"/mp-nothere"}`)
	put := `{"op":"store.put","store":"w","key":"%s","value":{"type":"pickle","hex":"` + strings.Repeat("00", 80) + `"}}`
	k.ok(fmt.Sprintf(put, "1"))
	k.fails("full", fmt.Sprintf(put, "2"))
	k.ok(`{"op":"store.create","store":"tiny","size":60,"max_object":120,"readers":1}`)
	k.fails("full", `{"op":"store.put","store":"tiny","key":"a","value":{"type":"pickle","hex":"`+strings.Repeat("00", 80)+`"}}`,
		"Not enough space in the data buffer, try calling free_buf() to free up space")
}

func intsOf(hexText string) []int {
	b, _ := hex.DecodeString(hexText)
	var out []int
	for _, x := range b {
		out = append(out, int(x))
	}
	return out
}

func TestWriterThatCounts(t *testing.T) {
	k := newTalker(t)
	k.ok(`{"op":"store.create","store":"w","size":4096,"max_object":1000,"readers":2,"lock":true,"generation":"0.31.0"}`)
	k.ok(`{"op":"store.put","store":"w","key":"a","value":` + pickleA + `}`)
	k.ok(`{"op":"store.get","store":"w","address":0,"id":0}`)
	k.ok(`{"op":"store.touch","store":"w","key":"a","address":0,"id":0}`)
	k.ok(`{"op":"store.state","store":"w"}`, "reader_flag", `{"0":1}`, "writer_flag", `{"0":1}`)
	k.ok(`{"op":"store.get","store":"w","address":0,"id":0}`)
	k.ok(`{"op":"store.touch","store":"w","key":"a","address":0,"id":0}`)
	k.ok(`{"op":"store.state","store":"w"}`, "reader_flag", `{"0":3}`)
	k.fails("unsupported", `{"op":"store.signature","store":"w","key":"a"}`)
	k.ok(`{"op":"store.clear","store":"w"}`)
	k.ok(`{"op":"store.put","store":"w","key":"b","value":`+pickleA+`}`, "id", `0`)
}

func TestReserveFillPublish(t *testing.T) {
	k := newTalker(t)
	k.ok(`{"op":"store.create","store":"w","size":4096,"max_object":1000,"readers":1}`)
	value := `{"type":"item","fields":[{"name":"x","data":{"dtype":"uint8","shape":[300]},"field":{"kind":"batched"}}]}`
	k.ok(`{"op":"store.reserve","store":"w","key":"a","value":`+value+`}`, "address", `0`, "id", `0`)
	k.fails("exists", `{"op":"store.reserve","store":"w","key":"a","value":`+value+`}`)
	k.ok(`{"op":"store.fill","store":"w","key":"a","field":"x","offset":0,"hex":"` + strings.Repeat("07", 300) + `"}`)
	k.ok(`{"op":"store.fill","store":"w","key":"a","field":"x","offset":299,"hex":"08"}`)
	k.fails("invalid", `{"op":"store.fill","store":"w","key":"a","field":"x","offset":299,"hex":"0808"}`)
	k.fails("invalid", `{"op":"store.fill","store":"w","key":"a","field":"y","offset":0,"hex":"08"}`)
	k.fails("invalid", `{"op":"store.fill","store":"w","key":"b","field":"x","offset":0,"hex":"08"}`)
	k.ok(`{"op":"store.publish","store":"w","key":"a"}`, "id", `0`)
	k.fails("invalid", `{"op":"store.publish","store":"w","key":"a"}`)
	k.ok(`{"op":"store.reserve","store":"w","key":"b","value":` + value + `}`)
	k.ok(`{"op":"store.discard","store":"w","key":"b"}`)
	k.ok(`{"op":"store.reserve","store":"w","key":"b","value":` + value + `}`) // left open: closing discards it
}

func TestValuesRoundTrip(t *testing.T) {
	k := newTalker(t)
	item := `{"type":"item","fields":[
		{"name":"px","data":{"dtype":"bfloat16","shape":[2,2],"hex":"0001020304050607"},"field":{"kind":"flat","slices":[[[0,3,null]],[[3,-7,2]]],"dim":1}},
		{"name":"n","data":[1,-2,18446744073709551615,1.5,2.0,true,false,[],{"dtype":"bool","shape":[3],"xof":"s"}],"field":{"kind":"shared","batch_size":4,"keep_on_cpu":true}},
		{"name":"z","data":null,"field":{"kind":"batched"}},
		{"name":"f","data":7,"field":{"kind":"flat","slices":[[null,null,null],[0,3,null]],"dim":0}}]}`
	for _, generation := range []string{"0.12.0", "0.15.1", "0.33.0"} {
		enc := k.ok(`{"op":"serde.encode","generation":"` + generation + `","value":` + item + `}`)
		frames, err := json.Marshal(enc["frames"])
		require.NoError(t, err)
		dec := k.ok(`{"op":"serde.decode","kind":"item","generation":"` + generation + `","frames":` + string(frames) + `}`)
		fields := dec["value"].(map[string]any)["fields"].([]any)
		require.Len(t, fields, 4)
		got, err := json.Marshal(fields[1].(map[string]any)["data"])
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(string(got), `[1,-2,18446744073709551615,1.5,2.0,true,false,[],{"dtype":"bool","hex":"0`), "%s", got)
		field, err := json.Marshal([]any{fields[0].(map[string]any)["field"], fields[3].(map[string]any)["field"]})
		require.NoError(t, err)
		require.JSONEq(t, `[{"kind":"flat","slices":[[[0,3,null]],[[3,-7,2]]],"dim":1},{"kind":"flat","slices":[[null,null,null],[0,3,null]],"dim":0}]`, string(field))
	}
	k.ok(`{"op":"serde.encode","value":{"type":"tensor","data":{"dtype":"uint8","shape":[3],"hex":"010203"}},"threshold":0}`, "frames", `["93a575696e7438910301","010203"]`)
	k.ok(`{"op":"serde.encode","value":{"type":"item","fields":[{"name":"x","data":[{"float":"nan"},{"float":"-inf"}],"field":{"kind":"batched"}}]}}`)
	k.fails("invalid", `{"op":"serde.encode","value":{"type":"item","fields":[{"name":"x","data":{"float":"1"},"field":{"kind":"batched"}}]}}`)
	k.ok(`{"op":"serde.metadata","hex":"8005951c000000000000008c0654656e736f72944a701101005d94284b184a581101006587942e"}`,
		"type", `"Tensor"`, "nbytes", `70000`, "lens", `[24,69976]`)
	k.ok(`{"op":"serde.metadata","hex":"8005950e000000000000008c056279746573944b154e87942e"}`, "lens", `null`)
	k.ok(`{"op":"address_item","address":100,"id":3,"generation":"0.31.0"}`,
		"hex", `"82a76164647265737382a46461746164a56669656c6492a76261746368656481ab6b6565705f6f6e5f637075c2ac6d6f6e6f746f6e69635f696482a46461746103a56669656c6492a76261746368656481ab6b6565705f6f6e5f637075c2"`)
	k.fails("corrupt", `{"op":"serde.decode","kind":"item","frames":["dd02000000"]}`)
	k.fails("corrupt", `{"op":"serde.metadata","hex":"80"}`)
	for _, bad := range []string{
		`{"type":"nope"}`, `{"type":"tensor"}`, `{"type":"tensor","data":5}`, `{"type":"pickle"}`, `{"type":"pickle","hex":"0"}`, `[]`, `5`, `null`,
		`{"type":"tensor","data":{"dtype":"uint8","shape":[1099511627776],"xof":"x"}}`,
		`{"type":"tensor","data":{"dtype":"uint8","shape":[-1],"xof":"x"}}`,
		`{"type":"item","fields":[{"name":"x","data":[` + strings.Repeat(`{"dtype":"uint8","shape":[1048576],"xof":"x"},`, 256) + `{"dtype":"uint8","shape":[1],"xof":"x"}],"field":{"kind":"batched"}}]}`,
		`{"type":"tensor","data":{"dtype":"float128","shape":[1],"xof":"x"}}`,
		`{"type":"tensor","data":{"dtype":"uint8","shape":[2],"hex":"00"}}`,
		`{"type":"tensor","data":{"dtype":"uint8","shape":[2]}}`,
		`{"type":"item","fields":[{"name":"x","data":1}]}`,
		`{"type":"item","fields":[{"name":"x","data":1,"field":{"kind":"round"}}]}`,
		`{"type":"item","fields":[{"name":"x","data":1,"field":{"kind":"flat","slices":[[[0,1]]]}}]}`,
		`{"type":"item","fields":[{"name":"x","data":1,"field":{"kind":"flat","slices":[[0,1,null],[[0,1,null]]]}}]}`,
		`{"type":"item","fields":[{"name":"x","data":123456789012345678901234567890,"field":{"kind":"batched"}}]}`,
		`{"type":"item","fields":[{"name":"x","data":"text","field":{"kind":"batched"}}]}`,
		`{"type":"item","fields":[{"name":"x","data":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `,"field":{"kind":"batched"}}]}`,
	} {
		k.fails("invalid", `{"op":"serde.encode","value":`+bad+`}`)
	}
}

func TestBadLinesAreAnswered(t *testing.T) {
	k := newTalker(t)
	for _, line := range []string{
		`garbage`, `null`, `[]`, `5`, `"x"`, `{`, `{"op":5}`, `{"op":null}`, `{}`, `{"op":"nope"}`, `{"op":"ring.new"}`,
		`{"op":"ring.new","ring":5,"size":100}`, `{"op":"ring.new","ring":"r","size":1e400}`, `{"op":"ring.new","ring":"r","size":99999999999999999999999}`,
		`{"op":"ring.new","ring":"r","size":"100"}`, `{"op":"ring.new","ring":"r","size":1.5}`, `{"op":"store.get","store":"none","address":0,"id":0}`,
		"\xff\xfe", strings.Repeat("[", 100000),
	} {
		k.fails("invalid", line)
	}
	out := k.do(`{"op":"nope","seq":{"a":[1]}}`)
	require.Equal(t, map[string]any{"a": []any{json.Number("1")}}, out["seq"])
}

func TestRunAnswersEveryLineInOrder(t *testing.T) {
	in := "{\"op\":\"ring.new\",\"ring\":\"r\",\"size\":100,\"seq\":1}\n\n  \nbad\n{\"op\":\"ring.state\",\"ring\":\"r\",\"seq\":2}" // no line end
	var out bytes.Buffer
	require.NoError(t, New().Run(strings.NewReader(in), &out))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 5)
	require.Contains(t, lines[0], `"seq":1`)
	for _, bad := range lines[1:4] {
		require.Contains(t, bad, `"invalid"`)
	}
	require.Contains(t, lines[4], `"seq":2`)
}

// TestEveryOpIsDocumented keeps docs/agent.md complete.
func TestEveryOpIsDocumented(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "docs", "agent.md"))
	require.NoError(t, err)
	for _, op := range New().Ops() {
		require.Contains(t, string(doc), "`"+op+"`")
	}
}

// FuzzAgent: whatever the lines, every one is answered with one JSON object,
// and nothing is left in shared memory.
func FuzzAgent(f *testing.F) {
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
