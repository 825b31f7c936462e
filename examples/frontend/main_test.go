package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/engine/enginetest"
	"github.com/ringcache/ringcache/pycompat"
)

// world is a server with a stand-in for an engine.
type world struct {
	*server
	t   *testing.T
	url string
	e   *enginetest.Engine
	eo  enginetest.Options
	ctx context.Context
}

func newWorld(t *testing.T, model, cache string) *world {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "rc-frontend-test-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	o := options{
		ModelDir: modelDir(t, model), Cache: cache, Capacity: 1.0 / 256, InFlight: 256, Bodies: 256,
		Dir: dir, Name: "f", Listener: "tcp://127.0.0.1:0", Start: 5 * time.Minute, Stall: 5 * time.Minute,
	}
	require.NoError(t, o.Validate())
	s, err := newServer(o, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	w := &world{server: s, t: t, ctx: ctx, eo: enginetest.Options{
		Handshake: s.engine.Address().Handshake, Segment: s.engine.Address().Segment, Dir: dir, RingSize: 4 << 20, Generation: pycompat.Newest(),
	}}
	if cache == "lru" {
		w.eo.Mirror = 4 << 20
	}
	kept := make(chan error, 1)
	running, stop := context.WithCancel(ctx)
	go func() { kept <- s.keep(running) }()
	h := httptest.NewServer(s.handler())
	w.url = h.URL
	t.Cleanup(func() {
		h.Close()
		stop()
		require.ErrorIs(t, <-kept, context.Canceled)
		require.NoError(t, s.close(running))
		w.e.Kill()
		cancel()
	})
	w.start()
	return w
}

func (w *world) start() {
	w.t.Helper()
	var err error
	w.e, err = enginetest.Start(w.ctx, w.eo)
	require.NoError(w.t, err)
	require.Eventually(w.t, func() bool {
		res, err := http.Get(w.url + "/health")
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.StatusCode == http.StatusOK
	}, 2*time.Minute, time.Millisecond)
}

func (w *world) post(body any) (int, []part) {
	w.t.Helper()
	b, err := json.Marshal(body)
	require.NoError(w.t, err)
	res, err := http.Post(w.url+"/v1/generate", "application/json", bytes.NewReader(b))
	require.NoError(w.t, err)
	defer res.Body.Close()
	var out []part
	for d := json.NewDecoder(res.Body); ; {
		var p part
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return res.StatusCode, out
		} else {
			require.NoError(w.t, err)
		}
		out = append(out, p)
	}
}

func testPhotos(t *testing.T) []photo {
	p, err := demoPhotos(filepath.Join("..", "media"))
	require.NoError(t, err)
	return p
}

func tokens(parts []part) (out []uint32) {
	for _, p := range parts {
		out = append(out, p.Tokens...)
	}
	return out
}

// TestServer: photos in, tokens out; the same tokens from the cache.
func TestServer(t *testing.T) {
	for _, model := range []string{"llava", "qwen2vl"} {
		for _, cache := range []string{"shm", "lru"} {
			t.Run(model+"/"+cache, func(t *testing.T) {
				w := newWorld(t, model, cache)
				image := w.vision.placeholder
				answers := map[string]bool{}
				for range 2 {
					for _, p := range testPhotos(t) {
						code, out := w.post(map[string]any{
							"prompt_token_ids": []uint32{1, image, 9}, "images": [][]byte{p.data}, "params": map[string]any{"max_tokens": 5, "temperature": 0.0},
						})
						require.Equal(t, http.StatusOK, code, out)
						require.Len(t, tokens(out), 5)
						require.Equal(t, "length", out[len(out)-1].Finish)
						answers[fmt.Sprint(tokens(out))] = true
					}
				}
				require.Len(t, answers, len(testPhotos(t)), "the same again, another for each")
				st := w.stats()
				require.Equal(t, int64(len(answers)), st.Cache.Produced)
				require.InDelta(t, 0.5, st.HitRate, 0.01)
				require.Positive(t, st.Fill)

				code, out := w.post(map[string]any{"prompt_token_ids": []uint32{1, 2, 3}, "params": map[string]any{"n": 2, "max_tokens": 2}})
				require.Equal(t, http.StatusOK, code)
				require.Len(t, tokens(out), 4)
				require.NoError(t, w.e.Fatal())
			})
		}
	}
}

// TestBadRequests have a status and a text, and the engine hears nothing.
func TestBadRequests(t *testing.T) {
	w := newWorld(t, "llava", "shm")
	good := testPhotos(t)[0].data
	image := w.vision.placeholder
	for name, body := range map[string]any{
		"no json":        "x",
		"no prompt":      map[string]any{},
		"no image":       map[string]any{"prompt_token_ids": []uint32{1, image}},
		"no place":       map[string]any{"prompt_token_ids": []uint32{1}, "images": [][]byte{good}},
		"no photo":       map[string]any{"prompt_token_ids": []uint32{1, image}, "images": [][]byte{[]byte("x")}},
		"half a photo":   map[string]any{"prompt_token_ids": []uint32{1, image}, "images": [][]byte{good[:len(good)/2]}},
		"many":           map[string]any{"prompt_token_ids": []uint32{1}, "images": make([][]byte, 17)},
		"token":          map[string]any{"prompt_token_ids": []uint32{1 << 30}},
		"parameter":      map[string]any{"prompt_token_ids": []uint32{1}, "params": map[string]any{"max_tokens": "x"}},
		"no such option": map[string]any{"prompt_token_ids": []uint32{1}, "params": map[string]any{"maximum": 1}},
	} {
		code, out := w.post(body)
		require.Equal(t, http.StatusBadRequest, code, name)
		require.NotEmpty(t, out[0].Error, name)
	}
	require.Empty(t, w.e.Requests())
}

// TestRestart: a client whose engine dies gets an error; the next one is served by the
// next engine, from the cache.
func TestRestart(t *testing.T) {
	w := newWorld(t, "llava", "shm")
	ask := map[string]any{"prompt_token_ids": []uint32{1, w.vision.placeholder}, "images": [][]byte{testPhotos(t)[0].data}, "params": map[string]any{"max_tokens": 3}}
	_, before := w.post(ask)
	w.e.Hold(true)
	told := make(chan []part)
	go func() {
		_, out := w.post(ask)
		told <- out
	}()
	require.NoError(t, enginetest.Wait(w.ctx, func() bool { return len(w.e.Requests()) == 2 }))
	w.e.Kill()
	out := <-told
	require.Contains(t, out[len(out)-1].Error, "gone")
	code, out := w.post(ask)
	require.Equal(t, http.StatusServiceUnavailable, code, out)
	w.start()
	_, after := w.post(ask)
	require.Equal(t, tokens(before), tokens(after))
	require.Equal(t, int64(1), w.stats().Cache.Produced)
}

func TestOptions(t *testing.T) {
	require.Error(t, options{}.Validate())
	require.Error(t, options{Capacity: 1, InFlight: 1, Bodies: 256, Start: 1, Stall: 1, Demo: true}.Validate())
	_, err := newServer(options{ModelDir: t.TempDir(), Cache: "shm", Capacity: 1}, slog.New(slog.DiscardHandler))
	require.Error(t, err)
	_, err = newServer(options{Version: "9.9", ModelDir: "x"}, slog.New(slog.DiscardHandler))
	require.ErrorIs(t, err, pycompat.ErrUnknownVersion)
}
