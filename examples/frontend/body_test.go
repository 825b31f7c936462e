package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"
)

// Small elements of JSON take many times their length in Go. What a body may have of
// them is bounded while it is read.
func TestJSONDoesNotGrowInMemory(t *testing.T) {
	const many = 1 << 20
	for name, body := range map[string]string{
		"params of {}":   `{"params":{"a":[` + strings.Repeat(`{},`, many) + `1]}}`,
		"params of null": `{"params":{"a":[` + strings.Repeat(`null,`, many) + `1]}}`,
		"params deep":    `{"params":{"a":` + strings.Repeat(`[`, many) + strings.Repeat(`]`, many) + `}}`,
		"params wide":    `{"params":{` + strings.Repeat(`"a":0,`, many) + `"b":1}}`,
		"tokens":         `{"prompt_token_ids":[` + strings.Repeat(`1,`, many) + `1]}`,
		"tokens of {}":   `{"prompt_token_ids":[` + strings.Repeat(`{},`, many) + `1]}`,
		"images of ''":   `{"images":[` + strings.Repeat(`"",`, many) + `""]}`,
		"images of null": `{"images":[` + strings.Repeat(`null,`, many) + `""]}`,
		"images twice":   `{` + strings.Repeat(`"images":[""],`, many) + `"params":{}}`,
		"unknown":        `{"x":[` + strings.Repeat(`{},`, many) + `1]}`,
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := read(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)))
			runtime.ReadMemStats(&after)
			var bad badRequest
			require.ErrorAs(t, err, &bad)
			// Of all that was allocated, dead or alive.
			allocated := int(after.TotalAlloc - before.TotalAlloc)
			require.Less(t, allocated, bodyCost*len(body)+16<<20)
		})
	}
}

func TestBodyOfAnAsk(t *testing.T) {
	ask := func(body string) (ask, error) {
		return read(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)))
	}
	q, err := ask(` {"prompt_token_ids":[1,2,4294967295], "images":["AAEC",""], "eos_token_id":7,
		"params":{"n":2,"t":0.5,"e":1e3,"s":"x","l":[1,[true,null]],"m":{"a":{}},"big":12345678901234567890}}`)
	require.NoError(t, err)
	require.Equal(t, []uint32{1, 2, 1<<32 - 1}, q.Prompt)
	require.Equal(t, [][]byte{{0, 1, 2}, {}}, q.Images)
	require.EqualValues(t, 7, *q.EOS)
	require.Equal(t, map[string]any{
		"n": int64(2), "t": 0.5, "e": 1000.0, "s": "x", "l": []any{int64(1), []any{true, nil}}, "m": map[string]any{"a": map[string]any{}},
		"big": 12345678901234567890.0,
	}, q.Params)
	for body, want := range map[string][]uint32{
		"[]": {}, " [ ] ": {}, "[0]": {0}, "\t[\r\n12 ,\t0,  4294967295\n]": {12, 0, 1<<32 - 1},
	} {
		q, err := ask(`{"prompt_token_ids":` + body + `}`)
		require.NoError(t, err)
		require.Equal(t, want, q.Prompt, body)
	}
	q, err = ask(`{"prompt_token_ids":null,"images":null,"params":null,"eos_token_id":null}`)
	require.NoError(t, err)
	require.Empty(t, q)
	for _, body := range []string{
		`{"prompt_token_ids":[` + strings.Repeat(`1,`, maxTokens) + `1]}`,
		``, `null`, `[]`, `5`, `{`, `{"params":`, `{"params":5}`, `{"params":[]}`, `{"images":{}}`, `{"images":[5]}`, `{"images":["?"]}`, `{"images":["AA=`,
		`{"prompt_token_ids":[-1]}`, `{"prompt_token_ids":[1.5]}`, `{"prompt_token_ids":["1"]}`, `{"prompt_token_ids":[4294967296]}`, `{"prompt_token_ids":[null]}`,
		`{"prompt_token_ids":5}`, `{"prompt_token_ids":{}}`, `{"prompt_token_ids":[1 2]}`, `{"prompt_token_ids":[1,]}`, `{"prompt_token_ids":[01]}`, `{"prompt_token_ids":[1`,
		`{"prompt_token_ids":[1e3]}`, `{"prompt_token_ids":[-0]}`, `{"prompt_token_ids":[[1]]}`, `{"prompt_token_ids":[99999999999999999999999]}`,
		`{"eos_token_id":-1}`, `{"params":{"x":1e999}}`, `{"Params":{}}`, `{"params":{},"params":{}}`, `{"params":{}} {}`, `{"params":{"a":1,"a":2}}`,
	} {
		_, err := ask(body)
		var bad badRequest
		require.ErrorAs(t, err, &bad, "%.80q", body)
	}
}

// unread counts what is read of a body.
type unread struct{ n atomic.Int64 }

func (u *unread) Read(p []byte) (int, error) {
	u.n.Add(int64(len(p)))
	return len(p), nil
}

// Bodies that are being served take up their memory: more of them are not read, but
// wait, and are told that the server is busy when their time is up.
func TestBodiesThatHaveNoMemoryAreNotRead(t *testing.T) {
	s := &server{bodies: semaphore.NewWeighted(bodyCost * maxBody)}
	for _, length := range []int64{1000, maxBody, 10 * maxBody, -1} {
		require.NoError(t, s.bodies.Acquire(t.Context(), bodyCost*maxBody))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		body := &unread{}
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/generate", body)
		r.ContentLength = length
		w := httptest.NewRecorder()
		s.generate(w, r)
		cancel()
		require.Equal(t, http.StatusServiceUnavailable, w.Code)
		require.NotEmpty(t, w.Header().Get("Retry-After"))
		require.Zero(t, body.n.Load())
		s.bodies.Release(bodyCost * maxBody)
		w = httptest.NewRecorder() // a body that is wrong gives its memory back
		s.generate(w, httptest.NewRequest(http.MethodPost, "/v1/generate", strings.NewReader("no JSON")))
		require.Equal(t, http.StatusBadRequest, w.Code)
	}
	require.True(t, s.bodies.TryAcquire(bodyCost*maxBody))
}
