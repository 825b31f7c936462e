package warm

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"
)

// Defaults and limits of Options.
const (
	defaultURL      = "http://127.0.0.1:8000"
	defaultPrompt   = "."
	defaultWorkers  = 4
	maxWorkers      = 256
	defaultMaxSize  = 64 << 20
	maxMaxSize      = 1 << 30
	defaultTimeout  = 10 * time.Minute
	defaultPatience = 5 * time.Minute
	maxKey          = 8 << 10 // bytes
	maxTries        = 4       // of an image with which the engine fails
	maxFailed       = 16      // images at the beginning: if the engine takes none of them, it takes none at all
)

// Options are what Run needs. The zero value is an engine on this machine that serves one model.
type Options struct {
	URL         string        // of the engine, http://127.0.0.1:8000 if empty
	Model       string        // as the engine names it; if empty, the first that it serves
	Key         string        // of the endpoint, sent as a bearer token
	Prompt      string        // beside each image, "." if empty
	Concurrency int           // requests at a time, 4 if 0, at most 256
	State       string        // path of the state file; without one a run begins anew
	MaxSize     int64         // bytes of an image, 64 MiB if 0, at most 1 GiB. Each request takes 2.4 times its image in memory
	Timeout     time.Duration // of a request, 10 minutes if 0
	Patience    time.Duration // how long the engine may be away or refuse all requests for being busy; 5 minutes if 0

	// Report is called for each image, and whenever one has to wait; by one goroutine at a time.
	Report func(Event)

	first time.Duration // the shortest wait before a request is sent again, for tests
}

// Event is what became of an image, or that it is tried again after Wait because of Err.
type Event struct {
	Path  string
	Known bool // not sent: the state has it, or it equals an image before it
	Err   error
	Wait  time.Duration
}

// Result is what became of all images.
type Result struct {
	Model    string
	Sent     int
	Known    int
	Failures []Failure // in the order of the images

	// Counted is whether the engine's metrics say what it did meanwhile, for this run and for everyone else
	// who asked it: outputs that it loaded from the daemon, and outputs that it encoded. What it had in its
	// own caches is neither.
	Counted         bool
	Loaded, Encoded int
}

// Validate returns an error that names what is wrong.
func (o Options) Validate() error {
	if _, err := parseURL(cmp.Or(o.URL, defaultURL)); err != nil {
		return err
	}
	switch {
	case o.Concurrency < 0 || o.Concurrency > maxWorkers:
		return fmt.Errorf("%d requests at a time: at least 1 and at most %d are possible", o.Concurrency, maxWorkers)
	case o.MaxSize < 0 || o.MaxSize > maxMaxSize:
		return fmt.Errorf("images of up to %d bytes: at least 1 and at most %d are possible",
			o.MaxSize, int64(maxMaxSize))
	case o.Timeout < 0 || o.Patience < 0:
		return errors.New("times can't be negative")
	case len(o.Key) > maxKey:
		return fmt.Errorf("the key of the endpoint has %d bytes: at most %d are possible", len(o.Key), maxKey)
	case strings.ContainsFunc(o.Key, func(r rune) bool { return r <= ' ' || r > '~' }):
		return errors.New("the key of the endpoint has characters that a header can't have: is a line end in it?")
	}
	return nil
}

func (o Options) defaults() Options {
	o.URL = cmp.Or(o.URL, defaultURL)
	o.Prompt = cmp.Or(o.Prompt, defaultPrompt)
	o.Concurrency = cmp.Or(o.Concurrency, defaultWorkers)
	o.MaxSize = cmp.Or(o.MaxSize, defaultMaxSize)
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	o.Patience = cmp.Or(o.Patience, defaultPatience)
	o.first = cmp.Or(o.first, 500*time.Millisecond)
	if o.Report == nil {
		o.Report = func(Event) {}
	}
	return o
}

// Run sends images to an engine, and returns when it has answered them. An image with which something is
// wrong is a failure in the result. The error is about the rest: the context has ended, the engine is away
// for longer than Patience or refuses everything, the state can't be written. What has been answered until
// then is in the result and in the state.
func Run(ctx context.Context, images []string, o Options) (result Result, err error) {
	if err := o.Validate(); err != nil {
		return Result{}, err
	}
	o = o.defaults()
	e, err := newEndpoint(o)
	if err != nil {
		return Result{}, err
	}
	defer e.close()
	r := &run{Options: o, endpoint: e, failures: map[int]Failure{}}
	r.result.Model = o.Model
	if o.Model == "" {
		if err := r.again(ctx, o.URL, func() (err error) {
			r.result.Model, err = e.model(ctx)
			return err
		}); err != nil {
			return Result{}, fmt.Errorf("the engine's models are unknown: %w", err)
		}
	}
	if r.state, err = openState(o.State, r.result.Model); err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, r.state.close()) }()
	before, known := e.counts(ctx)
	err = r.all(ctx, images)
	if r.result.Sent > 0 && known {
		r.counted(ctx, before)
	}
	return r.sum(), err
}

// run is one call of Run.
type run struct {
	Options
	endpoint *endpoint
	state    *state
	sending  singleflight.Group // by content: an image that is there twice is sent once

	mu       sync.Mutex
	away     time.Time       // since when the engine has not been there, or has been too busy; zero while it works
	refused  int             // images that the engine did not take
	failures map[int]Failure // by the number of the image
	result   Result          // without failures
}

func (r *run) sum() Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	numbers := make([]int, 0, len(r.failures))
	for i := range r.failures {
		numbers = append(numbers, i)
	}
	slices.Sort(numbers)
	for _, i := range numbers {
		r.result.Failures = append(r.result.Failures, r.failures[i])
	}
	return r.result
}

// stopError ends the run, since it would be the same for every image.
type stopError struct{ error }

func (e stopError) Unwrap() error { return e.error }

// unreadError is about a file, which the engine has not seen.
type unreadError struct{ error }

func (e unreadError) Unwrap() error { return e.error }

// all sends the images.
func (r *run) all(ctx context.Context, images []string) error {
	group, sending := errgroup.WithContext(ctx)
	group.SetLimit(r.Concurrency)
	for i, path := range images {
		if sending.Err() != nil {
			break
		}
		group.Go(func() error {
			known, err := r.one(sending, path)
			return r.end(sending, i, path, known, err)
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return ctx.Err() // sending has ended with the group
}

// end counts an image. The error ends the run.
func (r *run) end(ctx context.Context, i int, path string, known bool, err error) error {
	stop, all := errors.AsType[stopError](err)
	_, unread := errors.AsType[unreadError](err)
	switch {
	case all:
		return stop.error
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil:
		r.failures[i] = Failure{path, err}
		if !unread {
			r.refused++
		}
	case known:
		r.result.Known++
	default:
		r.result.Sent++
	}
	r.Report(Event{Path: path, Known: known, Err: err})
	if err != nil && !unread && r.refused == maxFailed && r.result.Sent+r.result.Known == 0 {
		return fmt.Errorf("the engine has taken none of the first %d images, so the rest are not sent. The last one: %w", maxFailed, err)
	}
	return nil
}

// one sends an image unless it has been sent.
func (r *run) one(ctx context.Context, path string) (known bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	data, media, err := read(path, r.MaxSize)
	if err != nil {
		if e, ok := errors.AsType[*fs.PathError](err); ok {
			err = e.Err
		}
		return false, unreadError{err}
	}
	c := content{sha256.Sum256(data), int64(len(data))}
	known = true
	_, err, _ = r.sending.Do(string(c.sum[:]), func() (any, error) {
		if r.state.has(c) {
			return nil, nil
		}
		known = false
		err := r.again(ctx, path, func() error {
			return r.endpoint.show(ctx, r.result.Model, r.Prompt, media, data)
		})
		if err != nil {
			return nil, err
		}
		if err := r.state.add(c); err != nil {
			return nil, stopError{err}
		}
		return nil, nil
	})
	return known, err
}
