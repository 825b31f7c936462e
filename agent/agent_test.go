package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/goldentest"
	"github.com/ringcache/ringcache/internal/shmfile"
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

// failure sends a request that must fail with a kind, and returns the error.
func (k *talker) failure(kind, line string) map[string]any {
	k.t.Helper()
	out := k.do(line)
	require.Equal(k.t, false, out["ok"], "%.200s", line)
	e := out["error"].(map[string]any)
	require.Equal(k.t, kind, e["kind"], "%.200s: %v", line, e["text"])
	return e
}

// refuses sends a request that must fail with a kind. The error's text must
// contain what was refused.
func (k *talker) refuses(kind, line, text string) {
	k.t.Helper()
	require.Contains(k.t, k.failure(kind, line)["text"], text, "%.200s", line)
}

// fails sends a request that must fail as in Python: with a kind, and with the
// text of upstream's error.
func (k *talker) fails(kind, line, upstream string) {
	k.t.Helper()
	e := k.failure(kind, line)
	require.NotEmpty(k.t, e["text"])
	require.Equal(k.t, upstream, e["upstream"], line)
}

// in returns a talker to the same agent, for a subtest.
func (k *talker) in(t *testing.T) *talker { return &talker{t, k.a} }

func TestRingFamily(t *testing.T) {
	k := newTalker(t)
	k.ok(`{"op":"ring.new","ring":"r","size":100}`)
	k.refuses("invalid", `{"op":"ring.new","ring":"r","size":100}`, `ring "r" exists`)
	k.ok(`{"op":"ring.alloc","ring":"r","size":20}`, "address", `0`, "id", `0`)
	k.ok(`{"op":"ring.alloc","ring":"r","size":30}`, "address", `28`, "id", `1`)
	k.ok(`{"op":"ring.header","ring":"r","address":28}`, "id", `1`, "size", `38`)
	k.ok(`{"op":"ring.fill","ring":"r","offset":8,"hex":"c0ffee"}`)
	k.ok(`{"op":"ring.peek","ring":"r","offset":0,"length":12}`, "hex", `"000000001c000000c0ffee00"`)
	k.refuses("invalid", `{"op":"ring.fill","ring":"r","offset":98,"hex":"c0ffee"}`, "3 bytes from 98 on: the ring has 100")
	k.refuses("invalid", `{"op":"ring.peek","ring":"r","offset":-1,"length":1}`, "1 bytes from -1 on: the ring has 100")
	k.fails("full", `{"op":"ring.alloc","ring":"r","size":30}`, "Not enough space in the data buffer, try calling free_buf() to free up space")
	k.refuses("full", `{"op":"ring.alloc","ring":"r","size":3000}`, "3008 bytes")
	k.refuses("invalid", `{"op":"ring.alloc","ring":"r","size":0}`, "allocation of 0 bytes")
	k.refuses("invalid", `{"op":"ring.alloc","ring":"r","size":-1}`, "allocation of -1 bytes")
	k.ok(`{"op":"ring.free","ring":"r","ids":[1]}`, "freed", `[]`)
	k.ok(`{"op":"ring.free","ring":"r","all":true,"limit":0}`, "freed", `[]`)
	k.ok(`{"op":"ring.free","ring":"r","ids":[0,7],"limit":null}`, "freed", `[0]`)
	k.ok(`{"op":"ring.state","ring":"r"}`, "start", `28`, "end", `66`, "id_start", `1`, "id_end", `2`, "metadata", `{"1":28}`)
	k.ok(`{"op":"ring.clear","ring":"r"}`)
	k.ok(`{"op":"ring.state","ring":"r"}`, "start", `0`, "id_start", `2`)
	k.refuses("corrupt", `{"op":"ring.header","ring":"r","address":97}`, "offset 97")
	k.ok(`{"op":"ring.close","ring":"r"}`)
	k.refuses("invalid", `{"op":"ring.state","ring":"r"}`, `no ring "r"`)

	k.ok(`{"op":"ring.new","ring":"old","size":100,"generation":"0.31.0","first_id":2147483647}`)
	k.ok(`{"op":"ring.alloc","ring":"old","size":1}`, "id", `2147483647`)
	k.ok(`{"op":"ring.alloc","ring":"old","size":1}`, "id", `0`)
	k.ok(`{"op":"ring.clear","ring":"old"}`)
	k.ok(`{"op":"ring.state","ring":"old"}`, "id_end", `0`)
	k.refuses("unsupported", `{"op":"ring.new","ring":"x","size":100,"generation":"9.9.9"}`, `"9.9.9"`)
	k.refuses("invalid", `{"op":"ring.new","ring":"x","size":100,"first_id":2147483648}`, "invalid request: first_id 2147483648")
	k.refuses("invalid", `{"op":"ring.new","ring":"x","size":4}`, "a ring of 4 bytes")
	k.refuses("invalid", `{"op":"ring.new","ring":"x","size":1000000000000}`, "size 1000000000000: at most 4294967296 in private memory")

	name := fmt.Sprintf("ringcache-test-agent-%d", os.Getpid())
	k.ok(`{"op":"ring.new","ring":"named","size":100,"name":"` + name + `"}`)
	k.refuses("exists_segment", `{"op":"ring.new","ring":"again","size":100,"name":"`+name+`"}`, name)
	k.refuses("no_space", `{"op":"ring.new","ring":"big","size":1125899906842624,"name":"`+name+`2"}`, "needs 1024.00 TiB")
	require.FileExists(t, filepath.Join(shmfile.DefaultDir, name))
	k.ok(`{"op":"ring.close","ring":"named"}`)
	require.NoFileExists(t, filepath.Join(shmfile.DefaultDir, name))
}

// TestRefusedRingLeavesNoSegment: a first_id out of range was once noticed by a panic, when the
// segment was there already.
func TestRefusedRingLeavesNoSegment(t *testing.T) {
	k := newTalker(t)
	name := fmt.Sprintf("ringcache-test-refused-%d", os.Getpid())
	t.Cleanup(func() { _ = os.Remove(filepath.Join(shmfile.DefaultDir, name)) })
	k.refuses("invalid", `{"op":"ring.new","ring":"r","size":100,"name":"`+name+`","first_id":2147483648}`, "first_id")
	require.NoFileExists(t, filepath.Join(shmfile.DefaultDir, name))
}

const (
	goldenSecret = `"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"`
	pickleA      = `{"type":"pickle","hex":"80059507000000000000004303414141942e"}` // b"AAA"
)

func TestBadLinesAreAnswered(t *testing.T) {
	k := newTalker(t)
	for _, c := range []struct{ line, text string }{
		{`garbage`, "not a JSON object: invalid character 'g' looking for beginning of value"},
		{`null`, "not a JSON object: null"},
		{`[]`, "not a JSON object: json: cannot unmarshal array"},
		{`5`, "not a JSON object: json: cannot unmarshal number"},
		{`"x"`, "not a JSON object: json: cannot unmarshal string"},
		{`{`, "not a JSON object: unexpected end of JSON input"},
		{`{"op":5}`, `field "op": json: cannot unmarshal number`},
		{`{"op":null}`, `field "op" is missing`},
		{`{}`, `field "op" is missing`},
		{`{"op":"nope"}`, `unknown op "nope"`},
		{`{"op":"ring.new"}`, `field "ring" is missing`},
		{`{"op":"ring.new","ring":5,"size":100}`, `field "ring": json: cannot unmarshal number`},
		{`{"op":"ring.new","ring":"r","size":1e400}`, `field "size": json: cannot unmarshal number 1e400`},
		{`{"op":"ring.new","ring":"r","size":99999999999999999999999}`, `field "size": json: cannot unmarshal number 99999999999999999999999`},
		{`{"op":"ring.new","ring":"r","size":"100"}`, `field "size": json: cannot unmarshal string`},
		{`{"op":"ring.new","ring":"r","size":1.5}`, `field "size": json: cannot unmarshal number 1.5`},
		{`{"op":"store.get","store":"none","address":0,"id":0}`, `no store "none"`},
		{"\xff\xfe", "not a JSON object: invalid character 'ÿ' looking for beginning of value"},
		{strings.Repeat("[", 100000), "not a JSON object: invalid character '[' exceeded max depth"},
	} {
		t.Run(c.text, func(t *testing.T) { k.in(t).refuses("invalid", c.line, c.text) })
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
