package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/mmcache"
)

// progressive is a gray JPEG file with one DC scan and as many AC scans, which are
// a few bytes each, but go through all blocks.
func progressive(side, scans int) []byte {
	segment := func(marker byte, data ...byte) []byte {
		b := binary.BigEndian.AppendUint16([]byte{0xff, marker}, uint16(len(data)+2))
		return append(b, data...)
	}
	codes := func(head byte, rest ...byte) []byte {
		return append(append([]byte{head}, rest...), make([]byte, 16-len(rest))...)
	}
	b := []byte{0xff, 0xd8}
	b = append(b, segment(0xdb, append([]byte{0}, bytes.Repeat([]byte{1}, 64)...)...)...)
	b = append(b, segment(0xc2, 8, byte(side>>8), byte(side), byte(side>>8), byte(side), 1, 1, 0x11, 0)...)
	b = append(b, segment(0xc4, append(codes(0x00, 1), 0)...)...)
	b = append(b, segment(0xc4, append(codes(0x10, 1, 1), 0xe0, 0)...)...)
	blocks := ((side + 7) / 8) * ((side + 7) / 8)
	b = append(append(b, segment(0xda, 1, 1, 0, 0, 0, 0)...), make([]byte, blocks/8+2)...)
	ac := append(segment(0xda, 1, 1, 0, 1, 63, 0), make([]byte, (blocks>>14+1)*15/8+2)...)
	return append(append(b, bytes.Repeat(ac, scans)...), 0xff, 0xd9)
}

func TestManyScansAreRefusedBeforeDecoding(t *testing.T) {
	s, err := newServer(testOptions(t, "processor_only"))
	require.NoError(t, err)
	w, r := post(t, s, progressive(64, 10))
	require.Equal(t, http.StatusOK, w.Code, r.Error)
	for _, scans := range []int{200, 60000} {
		w, r = post(t, s, progressive(64, scans))
		require.Equal(t, http.StatusRequestEntityTooLarge, w.Code)
		require.Contains(t, r.Error, "scans")
	}
	st := s.cache.Stats()
	require.EqualValues(t, 1, st.Produced)
	require.EqualValues(t, 1, st.Total, "the cache was not even asked")
	require.NoError(t, s.close())
}

// ending is a context that ends when it was asked a few times.
type ending struct {
	context.Context
	left atomic.Int64
}

func (e *ending) Err() error {
	if e.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// Whoever waited for the photo is gone: nothing is decoded to its end.
func TestDecodingEndsWithItsContext(t *testing.T) {
	s, err := newServer(testOptions(t, "processor_only"))
	require.NoError(t, err)
	for _, name := range []string{"coffee.png", "rocket.jpg"} {
		file, err := os.ReadFile("../media/" + name)
		require.NoError(t, err)
		p, err := inspect(file)
		require.NoError(t, err)
		for _, asked := range []int64{0, 1, 20} {
			ctx := &ending{Context: t.Context()}
			ctx.left.Store(asked)
			req, err := s.cache.Begin(t.Context(), "r", mmcache.Want{Key: name, Bytes: p.bound(), Modality: "image"})
			require.NoError(t, err)
			_, err = req.Item(t.Context(), name, func(_ context.Context, b *mmcache.Builder) error { return p.produce(ctx, b) })
			require.ErrorIs(t, err, context.Canceled, "%s after %d", name, asked)
			var bad badRequest
			require.NotErrorAs(t, err, &bad, "the image is not damaged")
			req.Rollback()
		}
	}
	require.NoError(t, s.close())
}

// unread counts what is read of a body.
type unread struct{ n atomic.Int64 }

func (u *unread) Read(p []byte) (int, error) {
	u.n.Add(int64(len(p)))
	return len(p), nil
}

// Bodies that are being served take up their memory: more of them are not read, but
// wait, and get the answer that the server is busy when their time is up.
func TestBodiesThatHaveNoMemoryAreNotRead(t *testing.T) {
	o := testOptions(t, "processor_only")
	s, err := newServer(o)
	require.NoError(t, err)
	release, err := s.bodies.acquire(t.Context(), maxBody) // all that there is
	require.NoError(t, err)
	for _, length := range []int64{1000, maxBody, -1} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		body := &unread{}
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/embed", body)
		r.ContentLength = length
		w := httptest.NewRecorder()
		s.handler().ServeHTTP(w, r)
		cancel()
		require.Equal(t, http.StatusServiceUnavailable, w.Code)
		require.NotEmpty(t, w.Header().Get("Retry-After"))
		require.Zero(t, body.n.Load())
	}
	release()
	w, _ := post(t, s, progressive(64, 1))
	require.Equal(t, http.StatusOK, w.Code)
	w, _ = post(t, s, []byte("no image"))
	require.Equal(t, http.StatusBadRequest, w.Code)
	require.True(t, s.bodies.TryAcquire(int64(o.Bodies)<<20), "everything was given back")
	require.NoError(t, s.close())
}
