package engine

import (
	"fmt"
	"log/slog"
	"os/exec"
	"time"

	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/pycompat"
)

// Options configure a client. Transport and Model.VocabSize are
// required.
type Options struct {
	// Transport makes the sockets: zmq.Transport{} of package engine/zmq.
	Transport Transport
	// Model is what requests are verified against.
	Model Model
	// Cache holds the multimodal items; nil for a model without. It belongs to the
	// caller, who closes it after the client. In mode shm the workers attach to its
	// segment when they start, so it is opened first, with the engine's generation
	// and ring size; the number of readers is set by Start.
	Cache mmcache.Cache

	// Command makes the command that starts the engine; nil if somebody else does.
	// It is run in a process group of its own, which is killed at the end, with the
	// environment that Address gives added to its own. If this process is killed
	// the engine is not: have the command end with its standard input
	// (cmd.StdinPipe), or with its parent, as vLLM itself does not.
	Command func(Address) *exec.Cmd
	// Handshake is the endpoint that the engine is started with. The default is a free
	// port of 127.0.0.1, since `vllm serve --headless` takes nothing else.
	// A launcher of one's own that passes the address on to EngineCoreProc may have
	// "ipc:///path", a file that only this user can open, where no other process of the
	// machine can get in the way.
	Handshake string
	// Dir is where the sockets of requests and answers lie, in a folder of their
	// own; the default is that of temporary files. If Bind is set they are TCP
	// sockets of that address, for an engine on another machine (without a segment
	// then): whoever can connect to them can speak for the engine, so it takes a
	// network that is trusted.
	Dir, Bind string

	// Generation is that of an engine that does not report its version (before vLLM
	// 0.23), or whose version is not in the table (pycompat.TreatAs). It is not needed
	// for any other engine.
	Generation *pycompat.Generation
	// Readers is the number of the engine's workers, tensor times pipeline parallel
	// size, if the engine does not report it (before vLLM 0.24).
	Readers int

	// StartTimeout bounds how long an engine may take to become ready. 0 is 10
	// minutes.
	StartTimeout time.Duration
	// Silence is how long an engine with requests or calls may send nothing before
	// it is asked whether it is there, and how long it may take to answer. 0 is 1
	// minute; twice as long must be longer than any step of the engine, also the
	// first, which may compile. Less than 0 never asks.
	Silence time.Duration
	// Grace is how long a process may take to end before it is killed. Close waits as
	// long for a last fence, and for producers of requests that it aborted. 0 is 20 s.
	Grace time.Duration

	// Logger gets the events of the engine's life. nil is silent.
	Logger *slog.Logger
}

const (
	defaultHandshake    = "tcp://127.0.0.1:0"
	defaultStartTimeout = 10 * time.Minute
	defaultSilence      = time.Minute
	defaultGrace        = 20 * time.Second
)

// Validate reports what is wrong with the options.
func (o Options) Validate() error {
	_, err := o.withDefaults()
	return err
}

func (o Options) withDefaults() (Options, error) {
	switch {
	case o.Transport == nil:
		return o, fmt.Errorf("%w: Transport is nil; use zmq.Transport{} of package engine/zmq", errInvalid)
	case o.Readers < 0 || o.StartTimeout < 0 || o.Grace < 0:
		return o, fmt.Errorf("%w: Readers %d, StartTimeout %v, Grace %v",
			errInvalid, o.Readers, o.StartTimeout, o.Grace)
	}
	if err := o.Model.validate(); err != nil {
		return o, err
	}
	if _, err := pycompat.Resolve(o.Generation); err != nil {
		return o, err
	}
	if o.Handshake == "" {
		o.Handshake = defaultHandshake
	}
	if o.StartTimeout == 0 {
		o.StartTimeout = defaultStartTimeout
	}
	if o.Silence == 0 {
		o.Silence = defaultSilence
	}
	if o.Grace == 0 {
		o.Grace = defaultGrace
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

// Address is what an engine has to be started with.
type Address struct {
	// Handshake is the endpoint of the handshake, "tcp://host:port"; Host and Port
	// are its parts: --data-parallel-address and --data-parallel-rpc-port of
	// `vllm serve --headless`. They are empty for "ipc:///path".
	Handshake, Host, Port string
	// Segment is the name of the segment, empty without one.
	Segment string
	// Env are the variables that the engine's environment needs, as "name=value".
	Env []string
}
