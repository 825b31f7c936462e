package coordinator

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ringcache/ringcache/kv"
	"github.com/ringcache/ringcache/kv/directory"
)

var lies = flag.Int("coordinator.lies", 20_000, "TestLies: requests")

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(m)
}

// events is the body of a batch about the chunks of tokens.
func events(t testing.TB, instance string, incarnation, seq int64, kind string, world int, tokens []int64) []byte {
	h, err := kv.NewHasher(kv.Scheme{ChunkTokens: 4})
	require.NoError(t, err)
	c := h.NewChain()
	require.NoError(t, c.SetTokens(tokens))
	backend := "dram"
	b := batch{Instance: instance, Incarnation: &incarnation, Seq: seq, Type: kind, Tier: "l1", Backend: &backend}
	for i := range c.Len() {
		for _, rank := range ranks(world) {
			k := encode(kv.ObjectKey{Hash: c.Hash(i), Model: "m", Rank: rank})
			b.Entries = append(b.Entries, entry{Key: &k, Size: 10})
		}
	}
	body, err := json.Marshal(eventsRequest{[]batch{b}})
	require.NoError(t, err)
	return body
}

// TestLongest: who has the longest prefix at all workers of a model; what is evicted, lost and gone counts.
func TestLongest(t *testing.T) {
	now := time.Unix(1000, 0)
	d := directory.New(directory.Options{Timeout: time.Second, Now: func() time.Time { return now }})
	s, err := New(Options{Directory: d, ChunkTokens: 4, Now: func() time.Time { return now }})
	require.NoError(t, err)
	h := s.Handler()
	tokens := make([]int64, 17)
	for i := range tokens {
		tokens[i] = int64(i)
	}
	post := func(path string, body []byte) string {
		w := ask(h, "POST", path, body)
		require.Equal(t, http.StatusOK, w.Code, w.Body)
		return w.Body.String()
	}
	longest := func() string {
		body, err := json.Marshal(map[string]any{"token_ids": tokens, "model_name": "m", "world_size": 2})
		require.NoError(t, err)
		return post("/directory/longest", body)
	}
	require.JSONEq(t, `{"chunks": 4, "instances": []}`, longest())
	post("/instances", []byte(`{"instance_id": "a", "ip": "x", "http_port": 1}`))
	post("/events", events(t, "a", 1, 1, store, 2, tokens[:12]))
	post("/events", events(t, "b", 1, 1, store, 2, tokens[:8]))
	post("/events", events(t, "c", 1, 1, store, 1, tokens)) // another model, so to say
	require.JSONEq(t, `{"chunks": 4, "instances": [
		{"instance_id": "a", "tokens": 12, "chunks": 3, "chunks_at": {"l1/dram": 3}, "stale": false},
		{"instance_id": "b", "tokens": 8, "chunks": 2, "chunks_at": {"l1/dram": 2}, "stale": false}]}`, longest())
	found, chunks, err := s.Longest("m", 2, "", tokens, 1)
	require.NoError(t, err)
	require.Equal(t, 4, chunks)
	require.Equal(t, []directory.Prefix{{Instance: "a", Chunks: 3, Places: []directory.Place{{Location: "l1/dram", Chunks: 3}}, Last: "l1/dram"}}, found)

	post("/events", events(t, "b", 1, 7, store, 2, tokens[:4]))
	require.Contains(t, longest(), `"stale":true`)
	require.Equal(t, 1, s.Counts().StreamsWithGap)
	post("/events", events(t, "b", 2, 1, store, 2, tokens[:4])) // it has begun anew
	require.Contains(t, longest(), `{"instance_id":"b","tokens":4,"chunks":1,"chunks_at":{"l1/dram":1},"stale":false}`)
	now = now.Add(time.Minute)
	require.Equal(t, 1, s.Expire(), "a has no heartbeat; the others have never registered")
	d.Expire()
	require.NotContains(t, longest(), `"a"`)
	require.Contains(t, longest(), `"b"`)
	require.JSONEq(t, `{"applied": 0, "duplicates": 0, "stale": 1}`, post("/events", events(t, "a", 1, 2, store, 2, tokens)))
	s.validate(t)

	_, _, err = s.Longest("", 1, "", tokens, 0)
	require.ErrorIs(t, err, fs.ErrInvalid)
	_, _, err = s.Longest("m", 300, "", tokens, 0)
	require.ErrorIs(t, err, fs.ErrInvalid)
}

// TestBounds: instances, objects and bodies have bounds.
func TestBounds(t *testing.T) {
	s, err := New(Options{Directory: directory.New(directory.Options{MaxWorkers: 3}), ChunkTokens: 4, MaxObjects: 5})
	require.NoError(t, err)
	h := s.Handler()
	tokens := make([]int64, 40)
	require.Equal(t, http.StatusOK, ask(h, "POST", "/events", events(t, "a", 1, 1, store, 1, tokens)).Code)
	require.EqualValues(t, 5, s.Counts().Full)
	s.validate(t)
	for i := range 5 {
		w := ask(h, "POST", "/events", events(t, fmt.Sprint(i), 1, 1, store, 1, tokens[:4]))
		require.Equal(t, i >= 2, w.Code == http.StatusServiceUnavailable, w.Body)
	}
	require.Equal(t, http.StatusRequestEntityTooLarge, ask(h, "POST", "/events", make([]byte, maxBody+1)).Code)
	for i := range maxInstances + 10 {
		w := ask(h, "POST", "/instances", fmt.Appendf(nil, `{"instance_id": "%d", "ip": "x", "http_port": 1}`, i))
		require.Equal(t, i >= maxInstances, w.Code == http.StatusServiceUnavailable, w.Body)
	}
	require.Equal(t, http.StatusUnprocessableEntity, ask(h, "POST", "/instances", []byte(`{"ip": "x", "http_port": 1, "metadata": {"a": "`+strings.Repeat("x", maxMetadata)+`"}}`)).Code)
	require.Equal(t, http.StatusNotFound, ask(h, "GET", "/quota", nil).Code)
}

// TestLies: bodies that say anything get an answer, and what is kept stays consistent and bounded.
func TestLies(t *testing.T) {
	d := directory.New(directory.Options{MaxWorkers: 50})
	s, err := New(Options{Directory: d, ChunkTokens: 4, MaxObjects: 1000})
	require.NoError(t, err)
	h := s.Handler()
	rng := rand.New(rand.NewPCG(5, 6))
	all := exchanges(t)
	answers := map[int]int{}
	const letters = " 0123456789-\"{}[],:abcdefnrtu\\\x00\xff"
	for n := range *lies {
		e := all[rng.IntN(len(all))]
		body := bytes.Clone(e.Body)
		switch rng.IntN(4) {
		case 0:
			body = body[:rng.IntN(len(body)+1)]
		case 1:
			for range 1 + rng.IntN(4) {
				body[rng.IntN(len(body))] = letters[rng.IntN(len(letters))]
			}
		case 2:
			body = bytes.ReplaceAll(body, []byte(`"instance_id": "`), fmt.Appendf(nil, `"instance_id": "%d`, rng.IntN(1<<30)))
		}
		w := ask(h, e.Method, e.Path, body)
		require.Less(t, w.Code, 504, "%s %s", e.Path, body)
		require.NotEqual(t, http.StatusInternalServerError, w.Code, "%s %s", e.Path, body)
		answers[w.Code]++
		if n%1000 == 0 {
			s.validate(t)
		}
	}
	s.validate(t)
	require.NotZero(t, answers[200]*answers[422]*answers[503], answers)
	require.LessOrEqual(t, d.Counts().Workers, 50)
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	require.Less(t, m.HeapAlloc, uint64(256<<20))
}

// FuzzEvents: no body makes the server panic, or its parts disagree.
func FuzzEvents(f *testing.F) {
	for i, e := range exchanges(f) {
		if e.Path == "/events" && i%8 == 0 {
			f.Add([]byte(e.Body))
		}
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		s, err := New(Options{Directory: directory.New(directory.Options{MaxWorkers: 10}), ChunkTokens: 4, MaxObjects: 100})
		require.NoError(t, err)
		for range 2 {
			ask(s.Handler(), "POST", "/events", body)
			s.validate(t)
		}
	})
}
