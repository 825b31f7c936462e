package enginecore

import (
	"github.com/ringcache/ringcache/internal/codec"
	"github.com/ringcache/ringcache/internal/pyvalue"
)

// Handshake is what EngineCore sends on the handshake socket
// (vllm/v1/engine/core.py, all releases).
type Handshake struct {
	// Status is "HELLO" where the engine asks for its addresses, and "READY" where it has
	// started.
	Status   string
	Local    bool
	Headless bool
	// NumGPUBlocks and DPStatsAddress come with READY until 0.19.1; from 0.20.0
	// on they are in [Ready].
	NumGPUBlocks   *int
	DPStatsAddress *string
	// ParallelConfigHash comes with READY where engines work data parallel.
	ParallelConfigHash *string
	// Rest is whatever else there is; values as [Codec.DecodeOutputs] gives them.
	Rest map[string]any
}

// DecodeHandshake reads a message of the handshake socket. The error wraps
// [serde.ErrCorrupt] or [serde.ErrUnsupported].
func DecodeHandshake(b []byte) (*Handshake, error) {
	rest, err := decodeMap("handshake", b)
	if err != nil {
		return nil, err
	}
	h := &Handshake{Rest: rest}
	if !take(rest, "status", &h.Status) || !take(rest, "local", &h.Local) || !take(rest, "headless", &h.Headless) {
		return nil, &codec.CorruptError{
			What: "handshake", Offset: 0, Want: "status, local and headless", Got: "a map without them",
		}
	}
	takeOptional(rest, "dp_stats_address", &h.DPStatsAddress)
	takeOptional(rest, "parallel_config_hash", &h.ParallelConfigHash)
	var n int
	if takeInt(rest, "num_gpu_blocks", &n) {
		h.NumGPUBlocks = &n
	}
	return h, nil
}

func decodeMap(what string, b []byte) (map[string]any, error) {
	return codec.Decode([][]byte{b}, func(d *codec.Decoder) (map[string]any, error) { return pyvalue.ReadMap(d, what) })
}

// take moves an entry out of m if it has the type that is wanted.
func take[T any](m map[string]any, name string, to *T) bool {
	v, fits := m[name].(T)
	if fits {
		*to = v
		delete(m, name)
	}
	return fits
}

// takeOptional is take for what may be None.
func takeOptional[T any](m map[string]any, name string, to **T) {
	if v, given := m[name]; given && v == nil {
		delete(m, name)
		return
	}
	if v := new(T); take(m, name, v) {
		*to = v
	}
}

// takeInt is take for counts.
func takeInt(m map[string]any, name string, to *int) bool {
	n, fits := m[name].(int64)
	if fits = fits && n >= 0 && int64(int(n)) == n; fits {
		*to = int(n)
		delete(m, name)
	}
	return fits
}

// Init is the frontend's answer to HELLO: where the engine finds the sockets
// (EngineHandshakeMetadata in vllm/v1/engine/utils.py).
type Init struct {
	// Inputs are the addresses of the input sockets, Outputs those of the output
	// sockets, one for each client.
	Inputs, Outputs             []string
	CoordinatorInput            *string
	CoordinatorOutput           *string
	FrontendStatsPublishAddress *string
	// ParallelConfig has values as [Codec.ParseSampling] takes them; empty is fine for one
	// engine.
	ParallelConfig map[string]any
	// ParallelConfigHash is not written if nil. 0.11.1 to 0.13.0 know it.
	ParallelConfigHash *string
}

// EncodeInit returns the message, the same for all releases. The error wraps
// [fs.ErrInvalid].
func EncodeInit(i *Init) ([]byte, error) {
	if i == nil {
		return nil, codec.Invalid("init message", "it is a nil *Init")
	}
	e := codec.NewEncoder(codec.DefaultThreshold)
	text := func(name string, s *string) {
		e.Text(name)
		codec.WriteOptional(e, s, e.Text)
	}
	if i.ParallelConfigHash == nil {
		e.Map(2)
	} else {
		e.Map(3)
	}
	e.Text("addresses")
	e.Map(5)
	e.Text("inputs")
	e.Texts(i.Inputs)
	e.Text("outputs")
	e.Texts(i.Outputs)
	text("coordinator_input", i.CoordinatorInput)
	text("coordinator_output", i.CoordinatorOutput)
	text("frontend_stats_publish_address", i.FrontendStatsPublishAddress)
	e.Text("parallel_config")
	pyvalue.Write(e, "init message", i.ParallelConfig)
	if i.ParallelConfigHash != nil {
		text("parallel_config_hash", i.ParallelConfigHash)
	}
	return e.Document()
}
