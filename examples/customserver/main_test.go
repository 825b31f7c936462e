package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ringcache/ringcache/mmcache"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func testOptions(t *testing.T, mode string) options {
	// The smaller photos are enough under the race detector.
	photos := t.TempDir()
	for _, name := range []string{"chelsea.png", "grace_hopper.jpg", "rocket.jpg"} {
		b, err := os.ReadFile(filepath.Join("../media", name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(photos, name), b, 0o600))
	}
	return options{
		Mode: mode, Capacity: 4, InFlight: 24, Bodies: 64, Model: "m", Dir: t.TempDir(), Timeout: time.Minute,
		Load: true, Photos: photos, Clients: 8, Requests: 40, Seed: 1,
	}
}

func TestLoad(t *testing.T) {
	for _, mode := range []string{"none", "processor_only", "lru", "shm"} {
		t.Run(mode, func(t *testing.T) {
			o := testOptions(t, mode)
			s, err := newServer(o)
			require.NoError(t, err)
			h := httptest.NewServer(s.handler())
			var out bytes.Buffer
			err = runLoad(t.Context(), &out, o, s, h.URL)
			t.Logf("\n%s", &out)
			require.NoError(t, err)
			st := s.cache.Stats()
			require.EqualValues(t, o.Requests, st.Finished)
			if mode != "none" {
				require.Positive(t, st.Hits)
			}
			if mode == "lru" {
				require.Positive(t, st.Repaired, "the engine was restarted")
			}
			h.Close()
			require.NoError(t, s.close())
			left, err := os.ReadDir(o.Dir)
			require.NoError(t, err)
			require.Empty(t, left, "the segment is still there")
		})
	}
}

// A signal in the middle of everything leaves nothing behind.
func TestInterrupted(t *testing.T) {
	for _, loading := range []bool{true, false} {
		o := testOptions(t, "shm")
		o.Load, o.Listen, o.Requests = loading, "127.0.0.1:0", 100000
		s, err := newServer(o)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.serve(ctx, o) }()
		if loading {
			require.Eventually(t, func() bool { return s.cache.Stats().Finished > 10 }, 2*time.Minute, time.Millisecond)
		}
		cancel()
		err = <-ended
		require.NoError(t, s.close())
		if loading {
			require.ErrorContains(t, err, "interrupted")
		} else {
			require.NoError(t, err)
		}
		left, err := os.ReadDir(o.Dir)
		require.NoError(t, err)
		require.Empty(t, left)
	}
}

// Who finds no memory waits, and gets an answer with that reason when the time is up.
func TestBusy(t *testing.T) {
	o := testOptions(t, "processor_only")
	o.Timeout = 50 * time.Millisecond
	s, err := newServer(o)
	require.NoError(t, err)
	hog, err := s.cache.Begin(t.Context(), "hog", mmcache.Want{Key: "k", Bytes: int64(o.InFlight) << 20})
	require.NoError(t, err)
	photo, err := os.ReadFile("../media/coffee.png")
	require.NoError(t, err)
	w, r := post(t, s, photo)
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.NotEmpty(t, w.Header().Get("Retry-After"))
	require.Contains(t, r.Error, "busy")
	hog.Rollback()
	s.timeout = time.Minute
	w, r = post(t, s, photo)
	require.Equal(t, http.StatusOK, w.Code)
	require.Len(t, r.Answers, 1)
	require.False(t, r.Answers[0].Hit)
	_, r = post(t, s, photo)
	require.True(t, r.Answers[0].Hit)
	require.NoError(t, s.close())
}

// The engine forgets a photo that the frontend takes it to have. The client gets
// its answer all the same.
func TestEngineRestarts(t *testing.T) {
	s, err := newServer(testOptions(t, "lru"))
	require.NoError(t, err)
	photo, err := os.ReadFile("../media/rocket.jpg")
	require.NoError(t, err)
	_, before := post(t, s, photo)
	s.engine.restart()
	w, after := post(t, s, photo)
	require.Equal(t, http.StatusOK, w.Code)
	require.True(t, after.Answers[0].Hit)
	require.Equal(t, before.Answers[0].Mean, after.Answers[0].Mean)
	st := s.cache.Stats()
	require.EqualValues(t, 1, st.Missed)
	require.EqualValues(t, 1, st.Resent)
	require.EqualValues(t, 1, st.Repaired)
	require.NoError(t, s.close())
}

func post(t *testing.T, s *server, body []byte) (*httptest.ResponseRecorder, reply) {
	w := httptest.NewRecorder()
	s.handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/embed", bytes.NewReader(body)))
	var r reply
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &r))
	return w, r
}
