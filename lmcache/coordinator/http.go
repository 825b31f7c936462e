package coordinator

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/ringcache/ringcache/kv/directory"
)

// Handler serves the paths of LMCache's coordinator, and /directory/longest.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /events", s.large(s.takeEvents))
	mux.HandleFunc("POST /directory/lookup", s.large(s.lookup))
	mux.HandleFunc("POST /directory/blend-lookup", s.large(s.blend))
	mux.HandleFunc("POST /directory/longest", s.large(s.longest))
	mux.HandleFunc("GET /directory/keys", s.large(s.list))
	mux.HandleFunc("GET /directory/stats", s.handle(func(*http.Request, []byte) (int, any, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return http.StatusOK, s.index.stats(), nil
	}))
	mux.HandleFunc("POST /instances", s.handle(s.register))
	mux.HandleFunc("GET /instances", s.handle(s.all))
	mux.HandleFunc("PUT /instances/{id}/heartbeat", s.handle(s.heartbeat))
	mux.HandleFunc("DELETE /instances/{id}", s.handle(s.deregister))
	mux.HandleFunc("PUT /config/chunk-size", s.handle(s.bind))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]string{"status": "healthy"})
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusNotFound, map[string]string{"detail": "Not Found"})
	})
	return mux
}

func answer(w http.ResponseWriter, status int, body any) {
	status, b := encodeAnswer(status, body)
	write(w, status, b)
}

func encodeAnswer(status int, body any) (int, []byte) {
	if body == nil {
		return status, nil
	}
	b, err := json.Marshal(body)
	if err != nil { // no body has what JSON has not
		return http.StatusInternalServerError, []byte(`{"detail":"the answer is not JSON"}`)
	}
	return status, b
}

func write(w http.ResponseWriter, status int, b []byte) {
	if b != nil {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(status)
	_, _ = w.Write(b) // a client that went away
}

// statusError is an error with a status of HTTP.
type statusError struct {
	status int
	error
}

func (e statusError) Unwrap() error { return e.error }

// action is what a path does with a request.
type action func(q *http.Request, body []byte) (status int, answer any, err error)

// large serves a path whose bodies and answers may be large. A few at a time are in memory, and a peer that
// does not send or take one loses its place.
func (s *Server) large(do action) http.HandlerFunc {
	return func(w http.ResponseWriter, q *http.Request) {
		most := int64(smallBody)
		if q.ContentLength < 0 || q.ContentLength > most {
			if !enter(q, s.bodies) {
				return
			}
			defer leave(s.bodies)
			most = maxBody
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(slowPeer)) // not every ResponseWriter can
		}
		body, ok := receive(w, q, most)
		if !ok || !enter(q, s.turns) {
			return
		}
		status, b := perform(do, q, body)
		if len(b) > smallBody {
			defer leave(s.turns)
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(slowPeer))
		} else {
			leave(s.turns)
		}
		write(w, status, b)
	}
}

// handle serves a path whose bodies and answers are small. It waits for no other request, so heartbeats come through.
func (s *Server) handle(do action) http.HandlerFunc {
	return func(w http.ResponseWriter, q *http.Request) {
		if body, ok := receive(w, q, smallBody); ok {
			status, b := perform(do, q, body)
			write(w, status, b)
		}
	}
}

func enter(q *http.Request, places chan struct{}) bool {
	select {
	case places <- struct{}{}:
		return true
	case <-q.Context().Done():
		return false
	}
}

func leave(places chan struct{}) { <-places }

// receive reads the body. It reports whether there is one to answer.
func receive(w http.ResponseWriter, q *http.Request, most int64) (body []byte, ok bool) {
	body, err := io.ReadAll(http.MaxBytesReader(w, q.Body, most))
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		answer(w, http.StatusRequestEntityTooLarge, map[string]string{"detail": err.Error()})
	}
	return body, err == nil // or the client went away
}

// perform does what a request wants, and returns the answer.
func perform(do action, q *http.Request, body []byte) (int, []byte) {
	status, out, err := do(q, body)
	with := statusError{}
	switch {
	case err == nil:
		return encodeAnswer(status, out)
	case errors.As(err, &with):
		return encodeAnswer(with.status, map[string]string{"detail": err.Error()})
	case errors.Is(err, directory.ErrFull):
		return encodeAnswer(http.StatusServiceUnavailable, map[string]string{"detail": err.Error()})
	}
	// in the form that FastAPI has for a body that is wrong
	return encodeAnswer(http.StatusUnprocessableEntity, map[string]any{
		"detail": []any{map[string]any{"type": "value_error", "loc": []string{"body"}, "msg": err.Error()}},
	})
}

func read(body []byte, to any) error {
	if err := json.Unmarshal(body, to); err != nil {
		return invalid("%v", err)
	}
	return nil
}
