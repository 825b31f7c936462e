// Command demo puts photos into shared memory and lets Python worker processes
// read them back and verify every byte.
//
// It is a small model of a multimodal frontend: requests name a few images each,
// popular ones more often; a new image is decoded and turned into the inputs of
// a vision model straight in the segment, a known one only gets another handle.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

type options struct {
	Photos   string `help:"Folder of JPEG and PNG files." default:"examples/media" type:"existingdir"`
	Python   string `help:"Python interpreter that has the worker's packages." default:"python3"`
	Peer     string `help:"Whose reader the workers run." enum:"ringcache,vllm" default:"ringcache"`
	Workers  int    `help:"Worker processes; each reads every object." default:"3"`
	Requests int    `help:"Requests to send." default:"300"`
	Images   int    `help:"Images of one request." default:"4"`
	RingMB   int    `help:"Size of the ring in MiB." default:"48" name:"ring-mb"`
	Engine   string `help:"vLLM version whose wire is spoken." default:"0.32.0"`
	Policy   string `help:"What stays in the ring: pool goes by requests, fifo is vLLM's own." enum:"pool,fifo" default:"pool"`
	Seed     uint64 `help:"Seed of the request sequence." default:"1"`
}

func main() {
	var o options
	kong.Parse(&o, kong.Description("Photos from Go to Python workers through shared memory."))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	err := run(ctx, o)
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		stop()
		os.Exit(1)
	}
}

// Validate is called by kong.
func (o options) Validate() error {
	if min(o.Workers, o.Requests, o.Images, o.RingMB) < 1 {
		return errors.New("workers, requests, images and ring-mb must be at least 1")
	}
	return nil
}
