// Command customserver is a small HTTP server with a multimodal cache in it, to
// copy from: photos that clients post are decoded once, into the memory where
// they stay, and a stand-in for an engine answers with the mean of their bytes.
//
//	curl --data-binary @examples/media/coffee.png http://127.0.0.1:8077/v1/embed
//	curl -F a=@examples/media/coffee.png -F b=@examples/media/rocket.jpg http://127.0.0.1:8077/v1/embed
//	curl http://127.0.0.1:8077/stats
//
// With --load it plays its own clients, checks every answer and exits.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/ringcache/ringcache/mmcache"
)

type options struct {
	Mode     string        `help:"Kind of the cache." enum:"none,processor_only,lru,shm" default:"lru"`
	Capacity int           `help:"Size of the cache in MiB." default:"24"`
	InFlight int           `help:"Memory that requests may hold besides, in MiB; who needs more waits." default:"48"`
	Bodies   int           `help:"Memory for the bodies of requests, in MiB; who needs more waits." default:"256"`
	Model    string        `help:"Model that the keys are for." default:"example/vision-model"`
	Dir      string        `help:"Folder of the segment in mode shm, /dev/shm if empty."`
	Name     string        `help:"Name of the segment in mode shm; one of this process if empty."`
	Listen   string        `help:"Address to listen on." default:"127.0.0.1:8077"`
	Timeout  time.Duration `help:"Most that a request may take, its wait for memory included." default:"20s"`

	Load     bool   `help:"Post photos to a server of its own, check every answer, print what the cache did, and exit."`
	Photos   string `help:"Folder of JPEG and PNG files to post." default:"examples/media"`
	Clients  int    `help:"Concurrent clients." default:"16"`
	Requests int    `help:"Requests of all clients together." default:"800"`
	Seed     uint64 `help:"Seed of the request sequence." default:"1"`
}

func main() {
	var o options
	kong.Parse(&o, kong.Description("An HTTP server with a multimodal cache in it."))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	err := run(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "customserver:", err)
		stop()
		os.Exit(1)
	}
}

// Validate is called by kong.
func (o options) Validate() error {
	if min(o.Capacity, o.InFlight, o.Clients, o.Requests) < 1 || o.Timeout <= 0 {
		return errors.New("capacity, in-flight, clients, requests and timeout must be above 0")
	}
	if least := bodyCost * maxBody >> 20; o.Bodies < least {
		return fmt.Errorf("bodies must be %d at least, which is what the largest body takes", least)
	}
	return nil
}

func (o options) cache() mmcache.Options {
	c := mmcache.Options{
		Mode: o.Mode, Capacity: float64(o.Capacity) * (1 << 20), InFlight: int64(o.InFlight) << 20,
		Shared: mmcache.SharedOptions{Readers: 1, Dir: o.Dir, Name: o.Name},
	}
	if o.Name == "" {
		c.Shared.Name = fmt.Sprintf("customserver%d", os.Getpid())
	}
	return c
}

func run(ctx context.Context, o options) error {
	s, err := newServer(o)
	if err != nil {
		return err
	}
	return errors.Join(s.serve(ctx, o), s.close())
}

// serve serves until ctx ends, or the load is done.
func (s *server) serve(ctx context.Context, o options) (err error) {
	if o.Load {
		o.Listen = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return err
	}
	// Every wait for a client ends. Answers are short, so that writing is bounded, too.
	h := &http.Server{
		Handler: s.handler(), MaxHeaderBytes: 64 << 10, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: o.Timeout,
		WriteTimeout: o.Timeout + 10*time.Second, IdleTimeout: time.Minute,
	}
	served := make(chan error, 1)
	go func() { served <- h.Serve(l) }()

	done := make(chan error, 1)
	if o.Load {
		go func() { done <- runLoad(ctx, os.Stdout, o, s, "http://"+l.Addr().String()) }()
	} else {
		fmt.Printf("listening on http://%s, cache %s\n", l.Addr(), o.Mode)
	}
	select {
	case err := <-served: // failed
		return err
	case err = <-done:
	case <-ctx.Done():
		if o.Load {
			err = errors.Join(errors.New("interrupted"), <-done)
		}
	}
	// Requests in flight get their answers; then nothing uses the cache.
	bye, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if serr := h.Shutdown(bye); serr != nil {
		err = errors.Join(err, serr, h.Close())
	}
	return err
}
