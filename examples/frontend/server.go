package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/ringcache/ringcache/engine"
	"github.com/ringcache/ringcache/engine/zmq"
	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/mmhash"
	"github.com/ringcache/ringcache/preprocess"
	"github.com/ringcache/ringcache/pycompat"
)

type server struct {
	o      options
	log    *slog.Logger
	vision *vision
	hasher mmhash.Options
	cache  mmcache.Cache
	engine *engine.Client
	ids    atomic.Int64
	bodies *semaphore.Weighted // bytes
}

func newServer(o options, log *slog.Logger) (_ *server, err error) {
	s := &server{o: o, log: log, bodies: semaphore.NewWeighted(int64(o.Bodies) << 20)}
	g := pycompat.Newest()
	if o.Version != "" {
		if g, err = pycompat.Lookup(o.Version); err != nil {
			return nil, err
		}
	}
	s.hasher.Generation = g
	if s.vision, err = openModel(o.ModelDir, preprocess.Options{Normalize: o.Float}); err != nil {
		return nil, err
	}
	s.vision.model.MaxLogprobs, s.vision.model.MaxModelLen, s.vision.model.MaxBatchedTokens = o.Logprobs, o.MaxLen, o.MaxBatch
	if o.Name == "" {
		o.Name = fmt.Sprintf("frontend%d", os.Getpid())
	}
	// The number of readers is set when the engine has told it.
	s.cache, err = mmcache.Open(mmcache.Options{
		Mode: o.mode(), Generation: g, Capacity: o.Capacity * (1 << 30), InFlight: int64(o.InFlight) << 20,
		Shared: mmcache.SharedOptions{Readers: 1, Name: o.Name, Dir: o.Dir},
	})
	if err != nil {
		return nil, err
	}
	eo := engine.Options{
		Transport: zmq.Transport{Logger: log}, Cache: s.cache, Model: s.vision.model, Handshake: o.Listener,
		Readers: o.Workers, StartTimeout: o.Start, Logger: log,
	}
	if !slices.Contains(g.ReadyFields, "vllm_version") {
		eo.Generation = g
	}
	if len(o.Engine) > 0 {
		eo.Command = s.command
	}
	if s.engine, err = engine.New(eo); err != nil {
		return nil, errors.Join(err, s.cache.Close())
	}
	return s, nil
}

// close removes the segment, whatever is open. Requests that are under way may end
// until ctx does; Shutdown names those that have not.
func (s *server) close(ctx context.Context) error {
	return errors.Join(s.engine.Close(ctx), s.cache.Shutdown(ctx), s.cache.Abandon())
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/generate", s.generate)
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, s.stats())
	})
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
		defer cancel()
		if err := s.engine.Check(ctx); err != nil {
			writeError(w, err)
		}
	})
	return mux
}

// ask is the body of a request. The prompt has one image token for each image.
type ask struct {
	Prompt []uint32       `json:"prompt_token_ids"`
	Images [][]byte       `json:"images"` // files, base64
	Params map[string]any `json:"params"`
	EOS    *uint32        `json:"eos_token_id"`
}

// part is one line of the answer.
type part struct {
	Index  int      `json:"index"`
	Tokens []uint32 `json:"token_ids,omitempty"`
	Finish string   `json:"finish_reason,omitempty"`
	Error  string   `json:"error,omitempty"`
}

// badRequest is an error of the client's.
type badRequest struct{ error }

func (b badRequest) Unwrap() error { return b.error }

func (s *server) generate(w http.ResponseWriter, r *http.Request) {
	st, err := s.receive(w, r)
	if err != nil {
		writeError(w, err)
		return
	}
	// Until here nothing was written, so that errors have a status.
	w.Header().Set("Content-Type", "application/x-ndjson")
	enc, flush := json.NewEncoder(w), http.NewResponseController(w)
	for o, err := range st.Outputs() {
		_ = flush.SetWriteDeadline(time.Now().Add(s.o.Stall)) // who reads nothing holds nothing
		p := part{Index: o.Index, Tokens: o.TokenIDs}
		switch {
		case err != nil:
			p = part{Error: err.Error()}
		case o.FinishReason != nil:
			p.Finish = o.FinishReason.String()
		}
		if enc.Encode(p) != nil || flush.Flush() != nil {
			return // the client is gone: leaving the loop aborts the request
		}
	}
}

// receive reads a request and submits it. The body is not used after that.
func (s *server) receive(w http.ResponseWriter, r *http.Request) (*engine.Stream, error) {
	release, err := s.acquireBody(r)
	if err != nil {
		return nil, err
	}
	defer release()
	q, err := read(w, r)
	if err != nil {
		return nil, err
	}
	return s.submit(r.Context(), q)
}

// submit takes a request as far as into the engine.
func (s *server) submit(ctx context.Context, q ask) (*engine.Stream, error) {
	req := engine.Request{ID: fmt.Sprint("request-", s.ids.Add(1)), EOS: q.EOS, Params: q.Params}
	tokens, wants, produce, err := s.images(ctx, q.Images)
	if err != nil {
		return nil, badRequest{err}
	}
	if req.Prompt, req.Placeholders, err = s.vision.expand(q.Prompt, tokens); err != nil {
		return nil, badRequest{err}
	}
	if len(wants) == 0 {
		return s.engine.Generate(ctx, req)
	}
	if req.Items, err = s.cache.Begin(ctx, req.ID, wants...); err != nil {
		return nil, err
	}
	defer req.Items.Rollback() // does nothing once it is the engine's
	for i, want := range wants {
		if _, err := req.Items.Item(ctx, want.Key, produce[i]); err != nil {
			return nil, err
		}
	}
	return s.engine.Generate(ctx, req)
}

// images looks at the headers of files: what they are, and what they will take.
func (s *server) images(ctx context.Context, files [][]byte) (tokens []int, wants []mmcache.Want, produce []mmcache.Producer, err error) {
	if len(files) == 0 {
		return nil, nil, nil, nil
	}
	h, err := mmhash.NewHasher(s.hasher)
	if err != nil {
		return nil, nil, nil, err
	}
	for i, f := range files {
		if ctx.Err() != nil {
			return nil, nil, nil, ctx.Err()
		}
		size, err := preprocess.Inspect(f)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("image %d: %w", i+1, err)
		}
		l, err := s.vision.Layout(size)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("image %d: %w", i+1, err)
		}
		key, err := h.Key(mmhash.Identity{ModelID: s.vision.name, Modality: "image", Item: &mmhash.EncodedImage{Data: f}})
		if err != nil {
			return nil, nil, nil, fmt.Errorf("image %d: %w", i+1, err)
		}
		const overhead = 4096 // what vLLM's rules count besides the tensors
		tokens = append(tokens, l.Tokens)
		wants = append(wants, mmcache.Want{Key: key, Bytes: l.Bytes + l.Scratch + overhead, Modality: "image"})
		produce = append(produce, preprocess.Producer(s.vision.Processor, f, l))
	}
	return tokens, wants, produce, nil
}

// stats is what /stats shows.
type stats struct {
	Engine  engine.Stats   `json:"engine"`
	Version string         `json:"version"`
	Workers int            `json:"workers"`
	Cache   mmcache.Stats  `json:"cache"`
	HitRate float64        `json:"hit_rate"`
	Fill    float64        `json:"fill"`
	Address engine.Address `json:"address"`
}

func (s *server) stats() stats {
	st := stats{Engine: s.engine.Stats(), Cache: s.cache.Stats(), Address: s.engine.Address()}
	if r := s.engine.Ready(); r != nil {
		st.Version, st.Workers = r.VLLMVersion, r.WorldSize
	}
	if st.Cache.Total > 0 {
		st.HitRate = float64(st.Cache.Hits) / float64(st.Cache.Total)
	}
	st.Fill = float64(st.Cache.CachedBytes) / (s.o.Capacity * (1 << 30))
	return st
}

func writeError(w http.ResponseWriter, err error) {
	var bad badRequest
	var long *http.MaxBytesError
	code := http.StatusInternalServerError
	switch {
	case errors.As(err, &long), errors.As(err, new(*mmcache.TooLargeError)):
		code = http.StatusRequestEntityTooLarge
	case errors.As(err, &bad), errors.Is(err, engine.ErrRefused), errors.Is(err, preprocess.ErrImage):
		code = http.StatusBadRequest
	case errors.Is(err, engine.ErrDead), errors.Is(err, engine.ErrNotRunning), errors.Is(err, engine.ErrAsleep), errors.Is(err, fs.ErrClosed), errors.Is(err, context.DeadlineExceeded):
		code = http.StatusServiceUnavailable
		w.Header().Set("Retry-After", "10")
	}
	writeJSON(w, code, part{Error: err.Error()})
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // the client may be gone
}
