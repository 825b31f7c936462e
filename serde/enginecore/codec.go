package enginecore

import (
	"errors"
	"maps"
	"slices"

	"github.com/ringcache/ringcache/internal/codec"
	"github.com/ringcache/ringcache/internal/pyvalue"
	"github.com/ringcache/ringcache/pycompat"
)

// Options chooses the wire. The zero value is the newest known vLLM with its
// default threshold.
type Options struct {
	// Generation is that of the engine; nil means [pycompat.Newest].
	Generation *pycompat.Generation
	// InlineThreshold is that of [serde.Options].
	InlineThreshold int
	// AllowUnknownParams lets ParseSampling take parameters that the generation
	// does not have, for an engine newer than the table. The caller answers for their
	// types.
	AllowUnknownParams bool
}

// Codec encodes what a frontend sends to engines of one generation, and decodes what
// they answer. It is immutable, and safe for concurrent use.
type Codec struct {
	gen       *pycompat.Generation
	inline    int // as in Options
	threshold int
	unknown   bool // parameters

	request []requestField // those of the generation, in wire order
	absent  []requestField // those that other generations have
	outputs []namedReader[Outputs]
	output  []namedReader[Output]
}

// New returns the Codec of a generation. The error is one of pycompat.
func New(o Options) (*Codec, error) {
	g, err := pycompat.Resolve(o.Generation)
	if err != nil {
		return nil, err
	}
	c := &Codec{
		gen: g, inline: o.InlineThreshold, threshold: codec.Threshold(o.InlineThreshold), unknown: o.AllowUnknownParams,
	}
	for _, name := range g.RequestFields {
		c.request = append(c.request, requestField{name, requestFields[name]})
	}
	for _, name := range slices.Sorted(maps.Keys(requestFields)) {
		if !slices.Contains(g.RequestFields, name) {
			c.absent = append(c.absent, requestField{name, requestFields[name]})
		}
	}
	for _, name := range g.OutputsFields {
		c.outputs = append(c.outputs, namedReader[Outputs]{name, outputsFields[name]})
	}
	for _, name := range g.OutputFields {
		c.output = append(c.output, namedReader[Output]{name, outputFields[name]})
	}
	return c, nil
}

// The frame in front of a message to EngineCore's input socket
// (EngineCoreRequestType in vllm/v1/engine/__init__.py).
const (
	typeAdd     = 0
	typeAbort   = 1
	typeUtility = 3
)

// withType returns the frames of a message: its type, then its body.
func withType(t byte, body ...[]byte) [][]byte {
	return append([][]byte{{t}}, body...)
}

// EncodeAbort returns the message that aborts these requests. The error wraps
// [fs.ErrInvalid].
func EncodeAbort(ids []string) ([][]byte, error) {
	e := codec.NewEncoder(codec.DefaultThreshold)
	e.Texts(ids)
	body, err := e.Document()
	if err != nil {
		return nil, err
	}
	return withType(typeAbort, body), nil
}

// Call is a call of a method of EngineCore, answered by an [Answer] with the same ID.
type Call struct {
	ClientIndex int
	ID          uint64
	Method      string
	// Args are values as [Codec.ParseSampling] takes them. A *[serde.Tensor] arrives as
	// the list that it is encoded as: EngineCore does not know what type to expect.
	Args []any
}

// EncodeCall returns the message of a call. The error wraps [fs.ErrInvalid].
func (c *Codec) EncodeCall(call *Call) ([][]byte, error) {
	if call == nil {
		return nil, codec.Invalid("utility call", "it is a nil *Call")
	}
	e := codec.NewEncoder(c.threshold)
	e.Array(4)
	e.Int(int64(call.ClientIndex))
	e.Uint(call.ID)
	e.Text(call.Method)
	pyvalue.Write(e, "field args", call.Args)
	body, err := e.Frames()
	if err != nil {
		return nil, err
	}
	return withType(typeUtility, body...), nil
}

// ErrEngineDead is the error of [Codec.DecodeOutputs] for the message that EngineCore
// sends when it dies (ENGINE_CORE_DEAD in vllm/v1/engine/core.py).
var ErrEngineDead = errors.New("enginecore: the engine reports that it is dead")

const engineDead = "ENGINE_CORE_DEAD"
