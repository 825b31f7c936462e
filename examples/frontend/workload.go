package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// workload is a list of requests to measure with: interop/e2e/README.md describes the file,
// interop/e2e/python_frontend.py serves it with vLLM's own frontend.
type workload struct {
	Kind     string `json:"kind"`
	Clients  int    `json:"clients"`
	Warmup   int    `json:"warmup"`
	Params   params `json:"params"`
	Requests []struct {
		Prompt []uint32 `json:"prompt_token_ids"`
		Images []string `json:"images"`
	} `json:"requests"`
	dir string
}

// figures are what is measured, named as the Python frontend's.
type figures struct {
	Version   string             `json:"vllm_version"`
	Kind      string             `json:"kind"`
	Clients   int                `json:"clients"`
	Requests  int                `json:"requests"`
	Tokens    int64              `json:"output_tokens"`
	Wall      float64            `json:"wall_s"`
	PerSecond float64            `json:"requests_per_s"`
	CPU       float64            `json:"frontend_cpu_s"`
	Latency   map[string]float64 `json:"latency_ms"`
}

func readWorkload(file string) (*workload, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	w := &workload{dir: filepath.Dir(file)}
	if err := json.NewDecoder(f).Decode(w); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if w.Clients < 1 || w.Warmup < 0 || w.Warmup >= len(w.Requests) {
		return nil, fmt.Errorf("%s: %d clients, %d requests to warm up of %d", file, w.Clients, w.Warmup, len(w.Requests))
	}
	delete(w.Params, "detokenize") // there is nothing here that could
	return w, nil
}

// serve starts the engine and serves a workload.
func serve(ctx context.Context, out io.Writer, s *server, file string) error {
	w, err := readWorkload(file)
	if err != nil {
		return err
	}
	if err := s.engine.Start(ctx); err != nil {
		return err
	}
	if _, _, err := w.run(ctx, s, 0, w.Warmup); err != nil {
		return err
	}
	began, cpu := time.Now(), ownCPU()
	times, tokens, err := w.run(ctx, s, w.Warmup, len(w.Requests))
	if err != nil {
		return err
	}
	wall := time.Since(began).Seconds()
	cpu = ownCPU() - cpu
	slices.Sort(times)
	at := func(share float64) float64 { return ms(times[int(share*float64(len(times)-1))]) }
	return json.NewEncoder(out).Encode(figures{
		Version: s.engine.Ready().VLLMVersion, Kind: w.Kind, Clients: w.Clients, Requests: len(times), Tokens: tokens,
		Wall: wall, PerSecond: float64(len(times)) / wall, CPU: cpu.Seconds(), Latency: map[string]float64{"p50": at(0.5), "p99": at(0.99)},
	})
}

// run serves some of the requests; each client has one under way at a time.
func (w *workload) run(ctx context.Context, s *server, from, to int) (times []time.Duration, tokens int64, err error) {
	times = make([]time.Duration, to-from)
	var wait sync.WaitGroup
	var next, made atomic.Int64
	errs := make([]error, w.Clients)
	for c := range w.Clients {
		wait.Go(func() {
			for i := int(next.Add(1)) - 1; i < to-from; i = int(next.Add(1)) - 1 {
				began := time.Now()
				n, err := w.one(ctx, s, from+i)
				if err != nil {
					errs[c] = fmt.Errorf("request %d: %w", from+i, err)
					return
				}
				times[i] = time.Since(began)
				made.Add(int64(n))
			}
		})
	}
	wait.Wait()
	return times, made.Load(), errors.Join(errs...)
}

func (w *workload) one(ctx context.Context, s *server, i int) (tokens int, err error) {
	q := ask{Prompt: w.Requests[i].Prompt, Params: w.Params}
	for _, name := range w.Requests[i].Images {
		b, err := os.ReadFile(filepath.Join(w.dir, name))
		if err != nil {
			return 0, err
		}
		q.Images = append(q.Images, b)
	}
	st, err := s.submit(ctx, q)
	if err != nil {
		return 0, err
	}
	got, err := st.Collect()
	for _, t := range got {
		tokens += len(t)
	}
	return tokens, err
}
