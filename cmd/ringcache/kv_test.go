package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ringcache/ringcache/daemon/client"
	"github.com/ringcache/ringcache/daemon/wire"
	"github.com/ringcache/ringcache/kv"
)

// kvServing is a daemon that serves LMCache's protocol, with chunks of 4 tokens.
func kvServing(t *testing.T, flags ...string) *serving {
	t.Helper()
	s := newServing(t)
	s.flags = append(s.flags, "--lmcache", "grpc+unix://"+s.lmcache(), "--lmcache-chunk-size", "4")
	s.flags = append(s.flags, flags...)
	return s
}

func (s *serving) lmcache() string { return filepath.Join(filepath.Dir(filepath.Dir(s.socket)), "kv") }

// layoutOf is what register registers, for a worker out of so many.
func layoutOf(model string, workers int) kv.Layout {
	return kv.Layout{
		Model: model, World: workers, ChunkTokens: 4,
		Groups: []kv.Group{{Layers: 2, Slots: 4, Hidden: 8, DType: "float32", Planes: 2, BlockTokens: 4}},
	}
}

// register registers a worker, as LMCache's connector does.
func (s *serving) register(model string, workers int) {
	s.t.Helper()
	conn, err := grpc.NewClient("unix:"+s.lmcache(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(s.t, err)
	defer conn.Close()
	var q []byte
	number := func(field protowire.Number, n uint64) {
		q = protowire.AppendVarint(protowire.AppendTag(q, field, protowire.VarintType), n)
	}
	text := func(field protowire.Number, v string) {
		q = protowire.AppendString(protowire.AppendTag(q, field, protowire.BytesType), v)
	}
	number(1, uint64(len(model)+workers)) // of the instance
	text(2, model)
	number(3, uint64(workers))
	number(4, 4) // tokens of a block
	number(5, 2) // layers
	number(6, 8) // hidden
	text(7, "float32")
	ctx := metadata.AppendToOutgoingContext(s.t.Context(), "lmcache-client-id-bin", fmt.Sprintf("%-16.16s", model))
	var p []byte
	require.NoError(s.t, conn.Invoke(ctx, "/lmcache.mp.EngineDrivenService/RegisterKvCacheEngineDrivenContext", q, &p,
		grpc.ForceCodec(bytesCodec{}), grpc.WaitForReady(true)))
}

// bytesCodec sends messages that are encoded already.
type bytesCodec struct{}

func (bytesCodec) Name() string                  { return "bytes" }
func (bytesCodec) Marshal(v any) ([]byte, error) { return v.([]byte), nil }
func (bytesCodec) Unmarshal(b []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), b...)
	return nil
}

// storeKV stores the first n chunks of a prompt for a worker, and keeps them pinned by a lease if it has a name.
func storeKV(t *testing.T, c *client.Client, l kv.Layout, worker int, salt, lease string, tokens []int64, n int) {
	t.Helper()
	space, err := l.Space(worker, 0, salt)
	require.NoError(t, err)
	names, err := chunkNames(l.ChunkTokens, tokens)
	require.NoError(t, err)
	m, err := c.Map(t.Context())
	require.NoError(t, err)
	defer m.Close()
	parent := ""
	for _, name := range names[:n] {
		data := make([]byte, l.Groups[0].Bytes())
		items, err := c.Reserve(t.Context(), wire.Request{Lease: "store", Space: space, Objects: []wire.Object{{Name: name, Size: int64(len(data)), Parent: parent}}})
		it := one(t, items, err)
		require.Equal(t, wire.StatusReserved, it.Status)
		require.NoError(t, m.Write(it, data))
		items, err = c.Commit(t.Context(), wire.Request{Lease: "store", Space: space, Names: []string{name}})
		require.Equal(t, wire.StatusOK, one(t, items, err).Status)
		if lease != "" {
			items, err = c.Pin(t.Context(), wire.Request{Lease: lease, Space: space, Names: []string{name}, Seconds: 3600})
			require.Equal(t, wire.StatusHit, one(t, items, err).Status)
		}
		parent = name
	}
}

// promptOf returns tokens, and the arguments that name them.
func promptOf(n, from int) (tokens []int64, args []string) {
	for i := range n {
		tokens = append(tokens, int64(from+i))
		args = append(args, fmt.Sprint(from+i))
	}
	return tokens, args
}

// TestKVFind: what is there of a prompt, for each layout and worker, in which levels, and who keeps it; also after
// a kill of the daemon.
func TestKVFind(t *testing.T) {
	disk := filepath.Join(t.TempDir(), "disk")
	s := kvServing(t, "--disk", disk)
	s.start()
	s.register("org/first", 1)
	s.register("org/second", 2)
	c := s.dial()
	tokens, args := promptOf(18, 100)
	first, second := layoutOf("org/first", 1), layoutOf("org/second", 2)
	storeKV(t, c, first, 0, "", "look-up 0 request", tokens, 3)
	storeKV(t, c, second, 0, "me", "", tokens, 4)
	storeKV(t, c, second, 1, "me", "", tokens, 2)
	written := func() bool { return askOf(t, s).Backlog == 0 }
	require.Eventually(t, written, patience, patience/1000)

	find := func(more ...string) (found []kvFound) {
		t.Helper()
		out, errOut, code := ringcache(t, append(append([]string{"kv", "find", "--json", "--socket", s.socket}, more...), args...)...)
		require.Zero(t, code, errOut)
		require.NoError(t, json.Unmarshal([]byte(out), &found))
		return found
	}
	const object = 2 * 2 * 4 * 8 * 4
	require.EqualValues(t, object, first.Groups[0].Bytes())
	verify := func(leases int) {
		t.Helper()
		found := find()
		require.Len(t, found, 2)
		require.Equal(t, []any{"org/second", 2, 0, 0}, []any{found[0].Model, found[0].Workers, found[0].Found, found[0].Objects}, "without the salt")
		f := found[1]
		require.Equal(t, []any{"org/first", 4, 18, 12, 3, int64(3 * object)}, []any{f.Model, f.Chunk, f.Tokens, f.Found, f.Objects, f.Bytes})
		names, err := chunkNames(4, tokens)
		require.NoError(t, err)
		require.Equal(t, names[3], f.FirstMiss)
		require.Equal(t, []kvFoundLevel{{"memory", 12, 3, 3 * object}, {"disk", 12, 3, 3 * object}}, f.Levels)
		require.Len(t, f.Leases, leases)
		if leases > 0 {
			l := f.Leases[0]
			require.Equal(t, []any{c.Session() + "/look-up 0 request", "test", os.Getpid(), 3}, []any{l.Name, l.Client, l.PID, l.Objects})
		}
		found = find("--model", "org/second", "--salt", "me")
		require.Len(t, found, 1)
		require.Equal(t, []any{8, 6}, []any{found[0].Found, found[0].Objects}, "what both workers have")
		require.Len(t, found[0].Spaces, 2)
	}
	verify(1)
	s.signal(syscall.SIGKILL)
	s.end()
	s.start()
	verify(1)
	require.NoError(t, c.Release(t.Context(), wire.Request{Leases: []string{"look-up 0 request"}}))
	verify(0)

	out, errOut, code := ringcache(t, append([]string{"kv", "find", "--socket", s.socket, "--model", "org/first"}, args...)...)
	require.Zero(t, code, errOut)
	require.Equal(t, `org/first, workers: 1, chunks of 4 tokens
12 of 18 tokens would be loaded

LEVEL      TOKENS  OBJECTS  BYTES
any level  12      3        1.5 KiB
memory     12      3        1.5 KiB
disk       12      3        1.5 KiB
`, out)
	out, _, code = ringcache(t, "kv", "find", "--socket", s.socket, "--model", "org/first", "1", "2")
	require.Zero(t, code)
	require.Contains(t, out, "0 of 2 tokens would be loaded\nthe prompt is shorter than a chunk")
}

// TestKVFindInManyChunks: a prompt with more chunks than a request may name.
func TestKVFindInManyChunks(t *testing.T) {
	s := kvServing(t)
	s.start()
	s.register("m", 1)
	tokens, _ := promptOf(4*(wire.MaxNames+2), 0)
	storeKV(t, s.dial(), layoutOf("m", 1), 0, "", "", tokens, 2)
	file := filepath.Join(t.TempDir(), "tokens")
	b, err := json.Marshal(map[string]any{"count": len(tokens), "tokens": tokens})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, b, 0o600))
	out, errOut, code := ringcache(t, "kv", "find", "--socket", s.socket, "-f", file)
	require.Zero(t, code, errOut)
	require.Contains(t, out, fmt.Sprintf("8 of %d tokens would be loaded", len(tokens)))
}

// TestKVTokens: the forms in which a prompt may be given.
func TestKVTokens(t *testing.T) {
	for text, want := range map[string][]int64{
		"1 2\n3":                     {1, 2, 3},
		" 1, 2,3\n":                  {1, 2, 3},
		"[1, 2, 3]":                  {1, 2, 3},
		`{"count":2,"tokens":[7,8]}`: {7, 8},
	} {
		got, err := kvFind{File: "-"}.prompt(strings.NewReader(text))
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for text, want := range map[string]string{
		"1 x 2": `"x" is no token`, "-1": `"-1" is no token`, "": "no tokens", "{}": "no tokens", "[1.5]": "no list of tokens", "4294967296": "is no token",
	} {
		_, err := kvFind{File: "-"}.prompt(strings.NewReader(text))
		require.ErrorContains(t, err, want, text)
	}
	_, err := kvFind{}.prompt(strings.NewReader("1"))
	require.ErrorContains(t, err, "no tokens")
	_, err = kvFind{File: "-", Tokens: []int64{1}}.prompt(strings.NewReader("1"))
	require.ErrorContains(t, err, "not both")
}

// TestKVClear: of a model, whatever its salt, and of a salt, whatever its model. What a lease keeps stays.
func TestKVClear(t *testing.T) {
	s := kvServing(t)
	s.start()
	s.register("org/first", 1)
	s.register("org/second", 2)
	c := s.dial()
	tokens, args := promptOf(8, 0)
	first, second := layoutOf("org/first", 1), layoutOf("org/second", 2)
	for _, salt := range []string{"", "a", "b"} {
		storeKV(t, c, first, 0, salt, "", tokens, 2)
		storeKV(t, c, second, 0, salt, "", tokens, 2)
		storeKV(t, c, second, 1, salt, "", tokens, 2)
	}
	there := func(model, salt string) int {
		t.Helper()
		out, errOut, code := ringcache(t, append([]string{"kv", "find", "--json", "--socket", s.socket, "--model", model, "--salt", salt}, args...)...)
		require.Zero(t, code, errOut)
		var found []kvFound
		require.NoError(t, json.Unmarshal([]byte(out), &found))
		return found[0].Objects
	}
	erase := func(args ...string) {
		t.Helper()
		_, errOut, code := ringcache(t, append([]string{"kv", "clear", "--socket", s.socket}, args...)...)
		require.Zero(t, code, errOut)
	}
	erase("--salt", "a")
	require.Equal(t, []int{2, 0, 2, 4, 0, 4}, []int{
		there("org/first", ""), there("org/first", "a"), there("org/first", "b"), there("org/second", ""), there("org/second", "a"), there("org/second", "b"),
	})
	erase("--salt=", "--model", "org/first")
	require.Equal(t, []int{0, 2, 4}, []int{there("org/first", ""), there("org/first", "b"), there("org/second", "")})
	names, err := chunkNames(4, tokens)
	require.NoError(t, err)
	space, err := second.Space(1, 0, "b")
	require.NoError(t, err)
	items, err := c.Pin(context.Background(), wire.Request{Lease: "kept", Space: space, Names: names[:1], Seconds: 3600})
	require.Equal(t, wire.StatusHit, one(t, items, err).Status)
	put(t, c, "another", "object", []byte("of another kind"))
	erase("--model", "org/second")
	require.Equal(t, []int{2, 0, 1}, []int{there("org/first", "b"), there("org/second", ""), there("org/second", "b")})
	require.Equal(t, wire.StatusHit, pin(t, c, "another", "object").Status)
}

// TestKVSaysWhatToDo: errors name the way on.
func TestKVSaysWhatToDo(t *testing.T) {
	s := kvServing(t)
	_, errOut, code := ringcache(t, "kv", "ls", "--socket", s.socket)
	require.Equal(t, 1, code)
	require.Contains(t, errOut, "start `ringcache serve`, or name its socket by --socket")
	s.start()
	for _, args := range [][]string{{"ls"}, {"find", "1"}, {"clear", "--salt", "x"}} {
		_, errOut, code = ringcache(t, append([]string{"kv", args[0], "--socket", s.socket}, args[1:]...)...)
		require.Equal(t, 1, code)
		require.Contains(t, errOut, "start the daemon with --lmcache")
	}
	out, _, code := ringcache(t, "kv", "ls", "--json", "--socket", s.socket)
	require.Zero(t, code)
	require.Equal(t, "[]\n", out)
	s.register("org/first", 1)
	_, errOut, code = ringcache(t, "kv", "find", "--socket", s.socket, "--model", "first", "1")
	require.Equal(t, 1, code)
	require.Contains(t, errOut, `no engine has registered the model "first"; the models are org/first`)
	_, errOut, code = ringcache(t, "kv", "clear", "--socket", s.socket)
	require.Equal(t, 1, code)
	require.Contains(t, errOut, "name what is to be deleted")
	_, errOut, code = ringcache(t, "kv", "find", "--socket", s.socket, "--salt", "a@b", "1")
	require.Equal(t, 1, code)
	require.Contains(t, errOut, `salt "a@b"`)
	out, _, code = ringcache(t, "kv", "ls", "--socket", s.socket)
	require.Zero(t, code)
	require.Equal(t, "MODEL      WORD  WORKERS  CHUNK  GROUPS  LAYERS  DTYPE    BYTES\norg/first  -     1        4      1       2       float32  512 B\n", out)
}

// endless is tokens without an end.
type endless struct{ read int }

func (e *endless) Read(b []byte) (int, error) {
	if e.read += len(b); e.read > 1<<28 {
		return 0, errors.New("it was read on and on")
	}
	for i := range b {
		b[i] = "1 "[i%2]
	}
	return len(b), nil
}

// TestPromptsWithoutAnEndAreRefused: stdin may be anything.
func TestPromptsWithoutAnEndAreRefused(t *testing.T) {
	_, err := kvFind{File: "-"}.prompt(&endless{})
	require.ErrorContains(t, err, "more than")
}
