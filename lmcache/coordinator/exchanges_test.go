package coordinator

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/kv/directory"
)

type exchange struct {
	Method string          `json:"method"`
	Path   string          `json:"path"`
	Body   json.RawMessage `json:"body"`
	Status int             `json:"status"`
	Answer json.RawMessage `json:"answer"`
}

func exchanges(t testing.TB) (all []exchange) {
	b, err := os.ReadFile("testdata/exchanges.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &all))
	return all
}

func ask(h http.Handler, method, path string, body []byte) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, bytes.NewReader(body)))
	return w
}

// ordered leaves out what is of a time, or has no order in LMCache's coordinator.
func ordered(t *testing.T, b []byte) any {
	if len(b) == 0 || string(b) == "null" {
		return nil
	}
	var x map[string]any
	require.NoError(t, json.Unmarshal(b, &x), "%s", b)
	delete(x, "blend")
	for _, name := range []string{"keys", "instances"} {
		list, _ := x[name].([]any)
		for _, e := range list {
			e := e.(map[string]any)
			delete(e, "registration_time")
			sortJSON(t, e["placements"])
		}
		sortJSON(t, x[name])
	}
	return x
}

func sortJSON(t *testing.T, list any) {
	l, _ := list.([]any)
	slices.SortFunc(l, func(a, b any) int {
		x, err := json.Marshal(a)
		require.NoError(t, err)
		y, err := json.Marshal(b)
		require.NoError(t, err)
		return cmp.Compare(string(x), string(y))
	})
}

// TestExchanges: the answers are those that LMCache's own coordinator gave to the same requests.
func TestExchanges(t *testing.T) {
	d := directory.New(directory.Options{})
	s, err := New(Options{Directory: d, ChunkTokens: 4})
	require.NoError(t, err)
	h := s.Handler()
	kinds := map[int]int{}
	for i, e := range exchanges(t) {
		if string(e.Body) == "null" {
			e.Body = nil
		}
		w := ask(h, e.Method, e.Path, e.Body)
		require.Equal(t, e.Status, w.Code, "%d: %s %s %s: %s", i, e.Method, e.Path, e.Body, w.Body)
		kinds[e.Status]++
		if e.Status < 400 || e.Status == http.StatusNotFound || e.Status == http.StatusConflict {
			require.Equal(t, ordered(t, e.Answer), ordered(t, w.Body.Bytes()), "%d: %s %s %s", i, e.Method, e.Path,
				e.Body)
		}
		s.validate(t)
	}
	require.Greater(t, kinds[200], 200)
	require.Greater(t, kinds[422], 20)
	require.NotZero(t, kinds[204]*kinds[404]*kinds[409]*kinds[400])
}

// validate checks that the parts of a server agree with each other and with the directory.
func (s *Server) validate(t testing.TB) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.index
	entries, tokens := 0, 0
	tiers := map[string]*tierStats{"l1": {}, "l2": {}}
	require.Len(t, x.order, len(x.objects))
	for name, o := range x.objects {
		require.Equal(t, name, nameOf(o.key))
		require.Same(t, o, x.order[o.at])
		require.Same(t, o, o.chunk.objects[name])
		require.NotEmpty(t, o.places)
		shared := map[string]bool{}
		for _, p := range o.places {
			tiers[p.Tier].count++
			tiers[p.Tier].bytes += p.Size
			id := directory.ID{Instance: p.Instance}
			if p.Shared {
				id.Instance = sharedHolder
			}
			require.True(t, x.d.Holds(id, p.Tier+"/"+p.Backend, directory.KeyOf(spaceOf(o.key), o.key.Hash)),
				"%v %v", o.key, p)
			if at := p.Tier + "/" + p.Backend; !p.Shared || !shared[at] {
				shared[at] = shared[at] || p.Shared
				entries++
			}
			if p.Tier == "l1" {
				require.Contains(t, x.l1[p.Instance], name)
			}
		}
	}
	for instance, names := range x.l1 {
		for name := range names {
			require.NotNil(t, x.objects[name])
			require.True(t, slices.ContainsFunc(x.objects[name].places,
				func(p place) bool { return p.Tier == "l1" && p.Instance == instance }))
		}
	}
	for hash, c := range x.chunks {
		require.Equal(t, hash, c.hash)
		require.NotEmpty(t, c.objects)
		tokens += len(c.tokens)
	}
	require.Equal(t, tokens, x.tokens)
	require.Equal(t, tiers, x.tiers)
	require.Equal(t, entries, x.d.Counts().Entries)
}
