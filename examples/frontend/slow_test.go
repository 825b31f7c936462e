package main

import (
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ringcache/ringcache/engine/enginetest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		http.DefaultClient.CloseIdleConnections()
	}))
}

// TestDeafClientHoldsItsRequest: a client that takes nothing in does not keep its request, its
// images and its place in the engine for ever.
func TestDeafClientHoldsItsRequest(t *testing.T) {
	w := newWorld(t, "llava", "shm")
	w.o.Stall = 10 * time.Millisecond
	c, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.(*net.TCPConn).SetReadBuffer(4<<10))
	body := `{"prompt_token_ids":[1,2,3],"params":{"max_tokens":3000000}}`
	_, err = c.Write([]byte("POST /v1/generate HTTP/1.1\r\nHost: x\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body))
	require.NoError(t, err)
	require.NoError(t, enginetest.Wait(w.ctx, func() bool { return w.engine.Stats().Failed == 1 }))
	require.NoError(t, enginetest.Wait(w.ctx, func() bool { return len(w.e.Aborts()) == 1 && w.engine.Stats().InFlight == 0 }))
}

// TestManySequences: one body can't ask for thousands of answers.
func TestManySequences(t *testing.T) {
	w := newWorld(t, "llava", "shm")
	for _, n := range []any{maxSequences + 1, 16384, 1 << 40, -1, "2", 1.5} {
		code, out := w.post(map[string]any{"prompt_token_ids": []uint32{1}, "params": map[string]any{"n": n, "max_tokens": 1}})
		require.Equal(t, http.StatusBadRequest, code, n)
		require.NotEmpty(t, out[0].Error)
	}
	require.Empty(t, w.e.Requests())
	code, out := w.post(map[string]any{"prompt_token_ids": []uint32{1}, "params": map[string]any{"n": maxSequences, "max_tokens": 1}})
	require.Equal(t, http.StatusOK, code)
	require.Len(t, tokens(out), maxSequences)
}
