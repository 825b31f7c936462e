package coordinator

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"slices"
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
	require.Equal(t, []directory.Prefix{{Instance: "a", Chunks: 3,
		Places: []directory.Place{{Location: "l1/dram", Chunks: 3}}, Last: "l1/dram"}}, found)

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
	require.JSONEq(t, `{"applied": 0, "duplicates": 0, "stale": 1}`,
		post("/events", events(t, "a", 1, 2, store, 2, tokens)))
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
	require.Equal(t, http.StatusUnprocessableEntity,
		ask(h, "POST", "/instances",
			[]byte(`{"ip": "x", "http_port": 1, "metadata": {"a": "`+strings.Repeat("x", maxMetadata)+`"}}`)).Code)
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
		// A GET lists thousands of instances, and has nothing to lie with.
		for e.Method == http.MethodGet && rng.IntN(100) > 0 {
			e = all[rng.IntN(len(all))]
		}
		body := bytes.Clone(e.Body)
		switch rng.IntN(4) {
		case 0:
			body = body[:rng.IntN(len(body)+1)]
		case 1:
			for range 1 + rng.IntN(4) {
				body[rng.IntN(len(body))] = letters[rng.IntN(len(letters))]
			}
		case 2:
			body = bytes.ReplaceAll(body, []byte(`"instance_id": "`),
				fmt.Appendf(nil, `"instance_id": "%d`, rng.IntN(1<<30)))
		}
		w := ask(h, e.Method, e.Path, body)
		require.Less(t, w.Code, 504, "%s %s", e.Path, body)
		require.NotEqual(t, http.StatusInternalServerError, w.Code, "%s %s", e.Path, body)
		answers[w.Code]++
		if n%max(1000, *lies/20) == 0 { // it looks at each of the objects
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
		s, err := New(Options{Directory: directory.New(directory.Options{MaxWorkers: 10}), ChunkTokens: 4,
			MaxObjects: 100})
		require.NoError(t, err)
		for range 2 {
			ask(s.Handler(), "POST", "/events", body)
			s.validate(t)
		}
	})
}

// send sends the batch of bodyOf, and checks the status of the answer.
func send(t *testing.T, h http.Handler, status int, b batch, models ...string) {
	t.Helper()
	require.Equal(t, status, ask(h, "POST", "/events", bodyOf(t, b, models...)).Code)
}

// bodyOf is a batch about one key, of which each may be wrong.
func bodyOf(t *testing.T, b batch, models ...string) []byte {
	if b.Incarnation == nil {
		b.Incarnation = new(int64)
	}
	if b.Backend == nil {
		dram := "dram"
		b.Backend = &dram
	}
	b.Tier = cmp.Or(b.Tier, "l1")
	for _, m := range models {
		k := encode(kv.ObjectKey{Hash: []byte("hash"), Model: m})
		b.Entries = append(b.Entries, entry{Key: &k, Size: 1})
	}
	body, err := json.Marshal(eventsRequest{list[batch]{b}})
	require.NoError(t, err)
	return body
}

// found returns who holds the object of a model that bodyOf is about.
func found(s *Server, model string) []directory.Prefix {
	k := kv.ObjectKey{Hash: []byte("hash"), Model: model}
	return s.o.Directory.Find([]directory.Key{directory.KeyOf(spaceOf(k), k.Hash)}, directory.Query{})
}

func newTestServer(t *testing.T, d directory.Options, o Options) (*Server, http.Handler) {
	o.Directory = directory.New(d)
	s, err := New(o)
	require.NoError(t, err)
	t.Cleanup(func() { s.validate(t) })
	return s, s.Handler()
}

// TestListsOfNothing: elements of two bytes do not become batches of 200, nor keys.
func TestListsOfNothing(t *testing.T) {
	_, h := newTestServer(t, directory.Options{}, Options{})
	for _, what := range []string{"0,", "{},", "null,", "[],"} {
		for path, name := range map[string]string{"/events": "batches", "/directory/lookup": "keys"} {
			body := []byte(`{"` + name + `": [` + strings.Repeat(what, 1<<20) + what[:len(what)-1] + `]}`)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			require.Equal(t, http.StatusUnprocessableEntity, ask(h, "POST", path, body).Code)
			runtime.ReadMemStats(&after)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(256<<20), "%s %s", path, what)
		}
	}
}

// TestAnswerIsBounded: one key that is asked for a thousand times has its tokens a thousand times in the answer.
func TestAnswerIsBounded(t *testing.T) {
	_, h := newTestServer(t, directory.Options{}, Options{})
	k := encode(kv.ObjectKey{Hash: []byte("hash"), Model: "m"})
	b := batch{Instance: "a", Seq: 1, Type: store, Entries: []entry{{Key: &k, Tokens: make([]int64, maxChunkTokens)}}}
	send(t, h, http.StatusOK, b)
	for n, want := range map[int]int{1: http.StatusOK, 100: http.StatusOK, 1000: http.StatusBadRequest} {
		q, err := json.Marshal(lookupRequest{Keys: slices.Repeat(list[encodedKey]{k}, n)})
		require.NoError(t, err)
		require.Equal(t, want, ask(h, "POST", "/directory/lookup", q).Code, n)
	}
}

// TestHeartbeatWhileBodiesCrawl: peers that announce large bodies and send none keep no heartbeat from coming
// through, and no small request.
func TestHeartbeatWhileBodiesCrawl(t *testing.T) {
	_, h := newTestServer(t, directory.Options{}, Options{})
	web := httptest.NewServer(h)
	defer web.Close()
	u, err := url.Parse(web.URL)
	require.NoError(t, err)
	for range 4 * atOnce {
		c, err := net.Dial("tcp", u.Host)
		require.NoError(t, err)
		defer c.Close()
		_, err = c.Write([]byte("POST /events HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n{"))
		require.NoError(t, err)
	}
	begin := time.Now()
	for path, want := range map[string]int{"/instances": 200, "/events": 200, "/directory/lookup": 422} {
		body := map[string]string{"/instances": `{"instance_id": "a", "ip": "x", "http_port": 1}`,
			"/events": `{"batches": []}`, "/directory/lookup": `{}`}[path]
		r, err := web.Client().Post(web.URL+path, "application/json", strings.NewReader(body))
		require.NoError(t, err)
		r.Body.Close()
		require.Equal(t, want, r.StatusCode, path)
	}
	require.Less(t, time.Since(begin), slowPeer, "they did not wait for a body to lose its turn")
}

// TestFailedBatchIsAGap: a batch for which there was no room is lost, so the instance is stale.
func TestFailedBatchIsAGap(t *testing.T) {
	s, h := newTestServer(t, directory.Options{MaxEntries: 1}, Options{})
	send(t, h, http.StatusOK, batch{Instance: "a", Seq: 1, Type: store}, "m")
	require.False(t, found(s, "m")[0].Stale)
	send(t, h, http.StatusServiceUnavailable, batch{Instance: "b", Seq: 1, Type: store}, "m")
	require.Equal(t, 1, s.Counts().StreamsWithGap)
	send(t, h, http.StatusOK, batch{Instance: "a", Seq: 2, Type: remove}, "m")
	send(t, h, http.StatusOK, batch{Instance: "b", Seq: 2, Type: store}, "m")
	require.True(t, found(s, "m")[0].Stale)
}

// TestLateStartIsStale: after a restart of the coordinator an instance is in the midst of its batches,
// whatever the first one is about that comes.
func TestLateStartIsStale(t *testing.T) {
	for _, first := range []string{access, config, remove, store} {
		s, h := newTestServer(t, directory.Options{}, Options{})
		var models []string
		if first == remove || first == store {
			models = []string{"other"}
		}
		send(t, h, http.StatusOK, batch{Instance: "a", Seq: 57, Type: first}, models...)
		send(t, h, http.StatusOK, batch{Instance: "a", Seq: 58, Type: store, Tier: "l2"}, "m")
		require.True(t, found(s, "m")[0].Stale, first)
		one := int64(1)
		send(t, h, http.StatusOK, batch{Instance: "a", Incarnation: &one, Seq: 1, Type: store}, "new")
		require.Equal(t, len(models) == 0, found(s, "new")[0].Stale,
			"%s: the directory knew of the memory, and it is empty; or not", first)
	}
}

// TestSharedPlaceThatAnotherTakesAway: what one instance stored and another one removed is in the memory of none.
func TestSharedPlaceThatAnotherTakesAway(t *testing.T) {
	s, h := newTestServer(t, directory.Options{}, Options{})
	for i := range int64(20) {
		model := fmt.Sprint(i)
		for _, instance := range []string{"a", "b"} {
			send(t, h, http.StatusOK, batch{Instance: instance, Seq: i + 1, Type: store, Shared: true}, model)
		}
		s.validate(t)
		send(t, h, http.StatusOK, batch{Instance: "c", Seq: i + 1, Type: remove, Shared: true}, model)
	}
	s.validate(t)
	require.Empty(t, s.index.l1["a"])
	require.Empty(t, s.index.l1["b"])
}

// TestPlacesAreBounded: objects that many instances have take no more room than MaxObjects says.
func TestPlacesAreBounded(t *testing.T) {
	s, h := newTestServer(t, directory.Options{}, Options{MaxObjects: 2})
	for i := range 20 {
		send(t, h, http.StatusOK, batch{Instance: fmt.Sprint(i), Seq: 1, Type: store}, "m", "m")
	}
	require.Len(t, found(s, "m"), 2*placesOfObject)
	require.NotZero(t, s.Counts().Full)
}

// TestInstancesThatComeAndGo: names that are used once do not fill the directory; what is on a disk is not
// found while its instance is away.
func TestInstancesThatComeAndGo(t *testing.T) {
	now := time.Unix(1000, 0)
	s, h := newTestServer(t, directory.Options{MaxWorkers: 3}, Options{Now: func() time.Time { return now }})
	post := func(path string, body []byte) {
		w := ask(h, "POST", path, body)
		require.Equal(t, http.StatusOK, w.Code, w.Body)
	}
	for i := range 20 {
		post("/events", bodyOf(t, batch{Instance: fmt.Sprint("mp-", i), Seq: 1, Type: store}, "m"))
		require.Equal(t, http.StatusNoContent, ask(h, "DELETE", "/instances/mp-"+fmt.Sprint(i), nil).Code)
	}
	require.Empty(t, s.o.Directory.Workers(""))
	post("/events", bodyOf(t, batch{Instance: "disk", Seq: 1, Type: store, Tier: "l2"}, "m"))
	require.Len(t, found(s, "m"), 1)
	require.Equal(t, http.StatusNoContent, ask(h, "DELETE", "/instances/disk", nil).Code)
	require.Empty(t, found(s, "m"))
	post("/instances", []byte(`{"instance_id": "disk", "ip": "x", "http_port": 1}`))
	require.Len(t, found(s, "m"), 1)

	post("/events", bodyOf(t, batch{Instance: "silent", Seq: 1, Type: store}, "m"))
	now = now.Add(idle + time.Second)
	require.Equal(t, 2, s.Expire(), "one without a heartbeat, one that has never registered")
	require.Empty(t, found(s, "m"))
	post("/events", bodyOf(t, batch{Instance: "silent", Seq: 2, Type: store}, "m"))
	require.True(t, found(s, "m")[0].Stale, "it was alive")
}

// TestNameOfSharedStorage: no instance has it.
func TestNameOfSharedStorage(t *testing.T) {
	_, h := newTestServer(t, directory.Options{}, Options{})
	send(t, h, http.StatusUnprocessableEntity, batch{Instance: sharedHolder, Seq: 1, Type: store}, "m")
	require.Equal(t, http.StatusUnprocessableEntity,
		ask(h, "POST", "/instances", []byte(`{"instance_id": "(shared)", "ip": "x", "http_port": 1}`)).Code)
}
