// Command lockstep is one half of a mirrored pair of caches; the other half is
// the real vLLM's, in a Python process behind a unix socket (lockstep_peer.py).
// It makes them work through random requests and compares what both hold, in
// order and size, and every value that comes back.
//
// It prints its counts as one line of JSON and exits with status 1 if anything
// was different or any request failed.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/alecthomas/kong"

	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/pycompat"
)

type options struct {
	Mode       string  `arg:"" help:"sender: a Go sender and vLLM's receiver. receiver: vLLM's sender and a Go receiver. faults: as sender, over a link that loses and reorders. sizes: what items count for." enum:"sender,receiver,faults,sizes"`
	Socket     string  `help:"Unix socket of the peer." required:""`
	Generation string  `help:"vLLM release of the peer." required:""`
	Requests   int     `help:"Requests to work through." default:"1000"`
	Clients    int     `help:"Goroutines that issue requests." default:"8"`
	Window     int     `help:"Requests that each of them has under way." default:"8"`
	Capacity   float64 `help:"Size of the caches in bytes." default:"48000.5"`
	Seed       uint64  `help:"Seed of the requests and faults." default:"1"`
	ByModality bool    `help:"Let the sender go modality by modality, as vLLM's frontend does. This must end in differences."`
}

// Validate is called by kong.
func (o options) Validate() error {
	if min(o.Requests, o.Clients, o.Window) < 1 || o.Capacity < 4096 {
		return errors.New("requests, clients and window must be at least 1, capacity at least 4096")
	}
	return nil
}

func main() {
	var o options
	kong.Parse(&o, kong.Description("Mirrored caches in lockstep with the real vLLM."))
	r := &report{started: time.Now()}
	r.Mode, r.Release = o.Mode, o.Generation
	err := run(o, r)
	if err == nil {
		err = r.verdict()
	}
	r.Seconds = time.Since(r.started).Seconds()
	_ = json.NewEncoder(os.Stdout).Encode(&r.counts)
	if err != nil {
		fmt.Fprintln(os.Stderr, "lockstep:", err)
		os.Exit(1)
	}
}

// setup is what the modes share.
type setup struct {
	options
	w      *wire
	peer   greeting
	rules  *pycompat.Generation
	python lrusync.Python
	report *report
}

func run(o options, r *report) error {
	g, err := pycompat.Lookup(o.Generation)
	if err != nil {
		return err
	}
	conn, err := net.Dial("unix", o.Socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	s := setup{options: o, w: newWire(conn), rules: g, report: r}
	err = s.w.write(hello{Mode: o.Mode, Capacity: o.Capacity, Requests: o.Requests, Seed: o.Seed})
	if err == nil {
		err = s.w.Flush()
	}
	if err == nil {
		err = s.w.read(&s.peer)
	}
	if err != nil {
		return fmt.Errorf("greeting: %w", err)
	}
	if s.peer.Release != o.Generation {
		return fmt.Errorf("the peer runs vLLM %s", s.peer.Release)
	}
	if s.python, err = lrusync.ParsePython(s.peer.Python); err != nil {
		return err
	}
	switch o.Mode {
	case "receiver":
		return s.receive()
	case "sizes":
		return s.sizes()
	}
	return s.load()
}
