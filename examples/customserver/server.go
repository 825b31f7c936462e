package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"mime/multipart"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/mmhash"
)

// maxResends is how often a request is sent again; once is the rule.
const maxResends = 5

type server struct {
	model   string
	timeout time.Duration
	bodies  bodies
	cache   mmcache.Cache
	engine  *engine
	ids     atomic.Int64
	peak    atomic.Int64 // most bytes in flight that a request saw
	// using is held by every request, so that close comes after the last one
	// even if the HTTP server gave up waiting for it.
	using sync.RWMutex
}

// answer is the engine's about one image.
type answer struct {
	Key    string  `json:"key"`
	Mean   float64 `json:"mean"`
	Width  int     `json:"width"`
	Height int     `json:"height"`
	Hit    bool    `json:"hit"`
}

type reply struct {
	Answers []answer `json:"answers,omitempty"`
	Error   string   `json:"error,omitempty"`
}

func newServer(o options) (*server, error) {
	co := o.cache()
	c, err := mmcache.Open(co)
	if err != nil {
		return nil, err
	}
	e, err := newEngine(c, co)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &server{
		model: o.Model, timeout: o.Timeout, bodies: bodies{semaphore.NewWeighted(int64(o.Bodies) << 20)}, cache: c, engine: e,
	}, nil
}

// close removes the segment, whatever is open; Close names what is.
func (s *server) close() error {
	s.using.Lock()
	defer s.using.Unlock()
	return errors.Join(s.engine.close(), s.cache.Close(), s.cache.Abandon())
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/embed", func(w http.ResponseWriter, r *http.Request) {
		s.using.RLock()
		defer s.using.RUnlock()
		ctx, cancel := context.WithTimeout(r.Context(), s.timeout)
		defer cancel()
		answers, err := s.embed(ctx, w, r)
		if err != nil {
			code := status(err)
			if code == http.StatusServiceUnavailable {
				w.Header().Set("Retry-After", "1")
				err = fmt.Errorf("the server is busy, try again: %w", err)
			}
			writeJSON(w, code, reply{Error: err.Error()})
			return
		}
		writeJSON(w, http.StatusOK, reply{Answers: answers})
	})
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, _ *http.Request) {
		s.using.RLock()
		defer s.using.RUnlock()
		writeJSON(w, http.StatusOK, s.cache.Stats())
	})
	return mux
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // the client may be gone
}

// badRequest is an error of the client's.
type badRequest struct{ error }

func (b badRequest) Unwrap() error { return b.error }

func status(err error) int {
	var bad badRequest
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &long), errors.As(err, new(*mmcache.TooLargeError)), errors.Is(err, errTooLarge):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.Is(err, fs.ErrClosed):
		return http.StatusServiceUnavailable
	case errors.As(err, &bad):
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}

// readImages returns the files of a request: the parts of a form, or the body.
func readImages(w http.ResponseWriter, r *http.Request) ([][]byte, error) {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/form-data" {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, badRequest{err}
		}
		return [][]byte{b}, nil
	}
	var files [][]byte
	for parts := multipart.NewReader(r.Body, params["boundary"]); ; {
		p, err := parts.NextPart()
		if errors.Is(err, io.EOF) && len(files) > 0 {
			return files, nil
		}
		if err != nil {
			return nil, badRequest{fmt.Errorf("reading the form: %w", err)}
		}
		if len(files) == maxImages {
			return nil, badRequest{fmt.Errorf("more than %d images in one request", maxImages)}
		}
		b, err := io.ReadAll(p)
		if err != nil {
			return nil, badRequest{fmt.Errorf("reading the form: %w", err)}
		}
		files = append(files, b)
	}
}

// embed is the way of a request through the cache.
func (s *server) embed(ctx context.Context, w http.ResponseWriter, r *http.Request) ([]answer, error) {
	release, err := s.bodies.acquire(ctx, r.ContentLength)
	if err != nil {
		return nil, err
	}
	defer release()
	files, err := readImages(w, r)
	if err != nil {
		return nil, err
	}
	hasher, err := mmhash.NewHasher(mmhash.Options{})
	if err != nil {
		return nil, err
	}
	photos := make([]photo, len(files))
	wants := make([]mmcache.Want, len(files))
	for i, f := range files {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if photos[i], err = inspect(f); err != nil {
			return nil, badRequest{fmt.Errorf("image %d: %w", i+1, err)}
		}
		key, err := hasher.Key(mmhash.Identity{ModelID: s.model, Modality: "image", Item: &mmhash.EncodedImage{Data: f}})
		if err != nil {
			return nil, err
		}
		wants[i] = mmcache.Want{Key: key, Bytes: photos[i].bound(), Modality: "image"}
	}
	req, err := s.cache.Begin(ctx, fmt.Sprint("request-", s.ids.Add(1)), wants...)
	if err != nil {
		return nil, err
	}
	defer req.Rollback()
	now := s.cache.Stats().InFlight
	for m := s.peak.Load(); now > m && !s.peak.CompareAndSwap(m, now); m = s.peak.Load() {
	}
	answers := make([]answer, len(files))
	for i, p := range photos {
		it, err := req.Item(ctx, wants[i].Key, p.produce)
		if err != nil {
			return nil, err
		}
		size, err := parseUpdates(it.Updates)
		if err != nil {
			return nil, err
		}
		answers[i] = answer{Key: it.Key, Hit: it.Hit, Width: size.X, Height: size.Y}
	}
	means, err := s.ask(ctx, req)
	if err != nil {
		return nil, err
	}
	for i := range answers {
		answers[i].Mean = means[i]
	}
	return answers, nil
}

// ask sends the request to the engine, again if the engine misses something, and
// ends it.
func (s *server) ask(ctx context.Context, req *mmcache.Request) ([]float64, error) {
	results := make(chan result, 1)
	send := func(b mmcache.Batch) error { return s.engine.enqueue(ctx, b, results) }
	if err := req.Commit(ctx, send); err != nil {
		return nil, err
	}
	// An answer proves that the engine is through with the items, whatever it is
	// and whether the client still waits: that is Finish. Abort would be for one
	// that does not wait for the answer, and needs a Fence later.
	defer req.Finish()
	for range maxResends {
		res := <-results
		if m, ok := s.cache.(*mmcache.Mirrored); ok && res.drift != nil {
			m.Repair(*res.drift)
		}
		switch {
		case res.err != nil:
			return nil, res.err
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case res.missing == nil:
			return res.means, nil
		}
		if err := req.Missed(ctx, res.missing, send); err != nil {
			return nil, err
		}
	}
	<-results
	return nil, errors.New("the engine missed items again and again")
}
