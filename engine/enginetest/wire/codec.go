package wire

import (
	"fmt"

	"github.com/ringcache/ringcache/internal/codec"
	"github.com/ringcache/ringcache/internal/pyvalue"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/serde/enginecore"
)

// Codec speaks for engines of one generation. It is immutable, and safe for concurrent
// use.
type Codec struct {
	gen       *pycompat.Generation
	threshold int
}

// New returns the Codec of o. The error is one of pycompat.
func New(o serde.Options) (*Codec, error) {
	g, err := pycompat.Resolve(o.Generation)
	if err != nil {
		return nil, err
	}
	return &Codec{g, codec.Threshold(o.InlineThreshold)}, nil
}

// EngineDead is the one frame that EngineCore sends on its output socket when it
// dies (ENGINE_CORE_DEAD in vllm/v1/engine/core.py).
const EngineDead = "ENGINE_CORE_DEAD"

// Abort is a message with the ids of requests to end.
type Abort []string

// Decode reads a message of the input socket: a *[Request], an [Abort], or an
// *[enginecore.Call], whose Args are values as enginecore.Codec.DecodeOutputs has them
// (EngineCoreRequestType in vllm/v1/engine/__init__.py). It is a view of the frames.
// The error wraps [serde.ErrCorrupt] or [serde.ErrUnsupported].
func (c *Codec) Decode(frames [][]byte) (any, error) {
	if len(frames) < 2 || len(frames[0]) != 1 {
		return nil, &codec.CorruptError{
			What: "message", Offset: -1, Want: "a type of one byte and a body", Got: fmt.Sprintf("%d frames",
				len(frames)),
		}
	}
	body := frames[1:]
	switch t := frames[0][0]; t {
	case 0:
		return decode(body, c.readRequest)
	case 1:
		return decode(body[:1], readAbort)
	case 3:
		return decode(body, readCall)
	default:
		return nil, &codec.UnsupportedError{
			Text: fmt.Sprintf("serde: there is no message of the type %d; frontends send 0, 1 and 3", t),
		}
	}
}

// decode keeps a typed nil out of the interface.
func decode[T any](frames [][]byte, read func(*codec.Decoder) (T, error)) (any, error) {
	v, err := codec.Decode(frames, read)
	if err != nil {
		return nil, err
	}
	return v, nil
}

func readAbort(d *codec.Decoder) (Abort, error) { return d.Texts("abort") }

func readCall(d *codec.Decoder) (*enginecore.Call, error) {
	d.AnyFrames = true
	c := &enginecore.Call{}
	err := d.ArrayOf(4, "utility call")
	if err == nil {
		c.ClientIndex, err = d.Int("client_index")
	}
	if err == nil {
		c.ID, err = d.Uint64("call_id")
	}
	if err == nil {
		c.Method, err = d.Text("method")
	}
	if err == nil {
		err = d.Expect(codec.KindArray, "args")
	}
	if err != nil {
		return nil, err
	}
	args, err := pyvalue.Read(d, "args", false)
	c.Args, _ = args.([]any)
	return c, err
}
