// Command frontend is an HTTP server in front of one vLLM engine: images and token
// ids in, token ids out, as they are made. Images are decoded in Go, straight into
// the shared memory from which the engine's workers read them, once for all
// requests that show them.
//
//	frontend --model DIR --version 0.32.0 --capacity 0.0625 -- python interop/e2e/launch.py --model DIR --cache-gb 0.0625 --handshake {handshake} --shm {segment}
//	frontend --model DIR -- vllm serve DIR --headless --data-parallel-address {host} --data-parallel-rpc-port {port} --mm-processor-cache-type shm ...
//
//	curl -N -d '{"prompt_token_ids":[1,4,9],"images":["'$(base64 -w0 cat.png)'"],"params":{"max_tokens":8}}' http://127.0.0.1:8078/v1/generate
//	curl http://127.0.0.1:8078/stats
//	curl -f http://127.0.0.1:8078/health
//
// Without a command it waits as long as --start for an engine that somebody else
// starts, and prints how.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
)

type options struct {
	ModelDir string        `name:"model" required:"" placeholder:"DIR" help:"Directory of the model: config.json and preprocessor_config.json."`
	Version  string        `help:"The engine's vLLM version; the newest known if empty."`
	Workers  int           `help:"The engine's workers, for versions that don't tell (before 0.24)."`
	MaxLen   int           `help:"The engine's max_model_len, for versions that don't tell (before 0.20)."`
	MaxBatch int           `help:"The engine's max_num_batched_tokens, for versions that don't tell (before 0.27)."`
	Logprobs int           `help:"The engine's --max-logprobs; 0 is its default, -1 the vocabulary."`
	Cache    string        `help:"The engine's mm_processor_cache_type." enum:"shm,lru" default:"shm"`
	Capacity float64       `help:"Its mm_processor_cache_gb, in GiB." default:"4"`
	Name     string        `help:"Name of the segment; a new one if empty."`
	Dir      string        `help:"Folder of the segment, /dev/shm if empty." hidden:""`
	InFlight int           `help:"Memory that requests may hold besides, in MiB; who needs more waits." default:"1024"`
	Bodies   int           `help:"Memory for the bodies of requests, in MiB; who needs more waits." default:"1024"`
	Float    bool          `help:"Send normalised floats for models whose engine could normalise (mm_device_do_normalize off)."`
	Listen   string        `help:"Address to listen on." default:"127.0.0.1:8078"`
	Listener string        `name:"handshake" help:"Endpoint of the engine's handshake." default:"tcp://127.0.0.1:0"`
	Start    time.Duration `help:"Most that the engine may take to start." default:"10m"`
	Drain    time.Duration `help:"How long requests may go on when the server is told to end." default:"10s"`
	Stall    time.Duration `help:"How long a client may take nothing in before its request is ended." default:"1m"`
	Log      bool          `help:"Show the engine's own log."`

	Demo   bool   `help:"Send photos to a server of its own, kill the engine on the way, print what happened, and exit."`
	Photos string `help:"Folder of the demo's photos." default:"examples/media"`

	Workload string `help:"Serve the requests of a workload (interop/e2e/README.md) without HTTP, print the figures as JSON, and exit." placeholder:"FILE" hidden:""`

	Engine []string `arg:"" optional:"" passthrough:"" help:"Command that starts the engine. {handshake}, {host}, {port} and {segment} are replaced."`
}

func main() {
	var o options
	kong.Parse(&o, kong.Description("An HTTP server in front of one vLLM engine."))
	if len(o.Engine) > 0 && o.Engine[0] == "--" {
		o.Engine = o.Engine[1:]
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := run(ctx, os.Stdout, o); err != nil {
		fmt.Fprintln(os.Stderr, "frontend:", err)
		stop()
		os.Exit(1)
	}
}

// Validate is called by kong.
func (o options) Validate() error {
	switch {
	case !(o.Capacity > 0) || o.InFlight < 1 || o.Start <= 0 || o.Stall <= 0:
		return errors.New("capacity, in-flight, start and stall must be above 0")
	case o.Bodies < bodyCost*maxBody>>20:
		return fmt.Errorf("bodies must be %d at least, which is what the largest body takes", bodyCost*maxBody>>20)
	case (o.Demo || o.Workload != "") && len(o.Engine) == 0:
		return errors.New("this needs the engine's command")
	}
	return nil
}

func (o options) mode() string {
	if o.Cache == "lru" {
		return "lru"
	}
	return "shm"
}

// run serves until ctx ends, or the demo is over.
func run(ctx context.Context, out io.Writer, o options) (err error) {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if (o.Demo || o.Workload != "") && !o.Log {
		log = slog.New(slog.DiscardHandler) // the demo prints what happens
	}
	s, err := newServer(o, log)
	if err != nil {
		return err
	}
	defer func() {
		bye, cancel := context.WithTimeout(context.Background(), o.Drain)
		defer cancel()
		err = errors.Join(err, s.close(bye))
	}()
	if o.Workload != "" {
		return serve(ctx, out, s, o.Workload)
	}
	if o.Demo {
		o.Listen = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return err
	}
	// Reading is bounded by time. Writing is, too, for each part of an answer (Stall): answers
	// are streams.
	h := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: time.Minute, IdleTimeout: time.Minute}
	ended := make(chan error, 3)
	go func() { ended <- h.Serve(l) }()
	running, stop := context.WithCancel(ctx)
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		if err := s.keep(running); err != nil && running.Err() == nil {
			ended <- err
		}
	}()
	if o.Demo {
		go func() { ended <- demo(running, out, s, "http://"+l.Addr().String(), o.Photos) }()
	} else {
		fmt.Fprintf(out, "listening on http://%s, cache %s\n", l.Addr(), o.Cache)
		if len(o.Engine) == 0 {
			fmt.Fprint(out, s.advice())
		}
	}
	select {
	case err = <-ended:
	case <-ctx.Done():
	}
	bye, cancel := context.WithTimeout(context.Background(), o.Drain)
	defer cancel()
	if serr := h.Shutdown(bye); serr != nil {
		err = errors.Join(err, h.Close()) // streams that go on are aborted
	}
	stop()
	<-kept
	return err
}
