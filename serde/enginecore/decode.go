package enginecore

import (
	"github.com/ringcache/ringcache/internal/codec"
	"github.com/ringcache/ringcache/internal/pyvalue"
)

// fieldReader reads a field of an Output or of Outputs.
type fieldReader[T any] struct {
	// needed: without it the frontend can't go on with the request.
	needed bool
	read   func(*reader, *T, string) error
}

type namedReader[T any] struct {
	name string
	fieldReader[T]
}

// reader reads the messages of an engine.
type reader struct {
	*codec.Decoder
	c *Codec
}

// DecodeOutputs reads a message of the output socket. It is made to lose as
// little as possible: longer arrays, shorter ones and unknown numbers are
// accepted, and what cannot be read in one part does not take the others with
// it (see Err and Unread). Tensors and arrays are views of the frames.
//
// A value of type any is nil, bool, int64 (uint64 above the largest), float64,
// string, []byte, []any, map[string]any, *[serde.Map] where a key is no string, or,
// where Python expects one, a *[serde.Tensor] or *[serde.NDArray].
//
// The error is [ErrEngineDead], or wraps [serde.ErrCorrupt]: this is no such message at
// all.
func (c *Codec) DecodeOutputs(frames [][]byte) (*Outputs, error) {
	return c.NewOutputsReader().Read(frames)
}

// OutputsReader decodes one message after the other into the same memory. It has one
// user at a time.
type OutputsReader struct {
	reader  reader // of decoder
	decoder codec.Decoder
	frames  [][]byte
	m       Outputs
}

// NewOutputsReader returns a reader of the Codec's messages.
func (c *Codec) NewOutputsReader() *OutputsReader {
	r := &OutputsReader{}
	r.reader = reader{&r.decoder, c}
	return r
}

// mostKept is how many outputs, and frames, an OutputsReader keeps memory for: those of a
// step with that many requests.
const mostKept = 1024

// Read is [Codec.DecodeOutputs]. The Outputs, and the elements of their field Outputs, are
// valid until the next call; what these point to belongs to the caller.
func (r *OutputsReader) Read(frames [][]byte) (*Outputs, error) {
	if len(frames) == 1 && string(frames[0]) == engineDead {
		return nil, ErrEngineDead
	}
	outputs := r.m.Outputs
	if cap(outputs) > mostKept {
		outputs = nil
	}
	clear(outputs)
	r.m = Outputs{Outputs: outputs[:0]}
	r.frames = append(r.frames[:0], frames...)
	defer r.forget()
	if err := r.decoder.Begin(r.frames); err != nil {
		return nil, err
	}
	if err := r.reader.message(&r.m); err != nil {
		return nil, err
	}
	if err := r.decoder.End(); err != nil {
		return nil, err
	}
	return &r.m, nil
}

// forget lets go of the frames.
func (r *OutputsReader) forget() {
	clear(r.frames)
	if cap(r.frames) > mostKept {
		r.frames = nil
	}
	r.decoder = codec.Decoder{}
}

func (r *reader) message(m *Outputs) error {
	r.AnyFrames = true
	n, err := r.Array("outputs message")
	if err != nil {
		return err
	}
	for i := range n {
		failure, err := r.Part("outputs message", func() error {
			if i >= len(r.c.outputs) {
				return r.Skip("outputs message")
			}
			return r.c.outputs[i].read(r, m, r.c.outputs[i].name)
		})
		if err != nil {
			return err
		}
		if failure != nil {
			m.Unread = append(m.Unread, failure)
		}
	}
	return nil
}

// outputsFields has the fields of Outputs.
var outputsFields = map[string]fieldReader[Outputs]{
	"engine_index":      {read: codec.Value(func(m *Outputs) *int { return &m.EngineIndex }, (*reader).Int)},
	"outputs":           {read: (*reader).outputs},
	"timestamp":         {read: codec.Value(func(m *Outputs) *float64 { return &m.Timestamp }, (*reader).Float)},
	"wave_complete":     {read: codec.Optional(func(m *Outputs) **int { return &m.WaveComplete }, (*reader).Int)},
	"start_wave":        {read: codec.Optional(func(m *Outputs) **int { return &m.StartWave }, (*reader).Int)},
	"weight_version":    {read: codec.Optional(func(m *Outputs) **string { return &m.WeightVersion }, (*reader).Text)},
	"scheduler_stats":   {read: codec.Value(func(m *Outputs) *any { return &m.SchedulerStats }, (*reader).plain)},
	"utility_output":    {read: codec.OrNone(func(m *Outputs) **Answer { return &m.Answer }, (*reader).answer)},
	"finished_requests": {read: codec.OrNone(func(m *Outputs) *[]string { return &m.FinishedRequests }, (*reader).Texts)},
}

// plain reads a value in which no arrays and tensors are expected, and anything one in which they are.
func (r *reader) plain(what string) (any, error) { return pyvalue.Read(r.Decoder, what, false) }

func (r *reader) anything(what string) (any, error) { return pyvalue.Read(r.Decoder, what, true) }

const costOutput = 400

// outputs reads the entries of which it is clear whose they are; for the others
// there is an error in m.Unread.
func (r *reader) outputs(m *Outputs, _ string) error {
	n, err := r.Array("outputs")
	if err != nil {
		return err
	}
	if err := r.Charge("outputs", costOutput*n); err != nil {
		return err
	}
	if m.Outputs == nil || cap(m.Outputs) < n {
		m.Outputs = make([]Output, 0, n)
	}
	for range n {
		m.Outputs = append(m.Outputs, Output{})
		last := len(m.Outputs) - 1
		failure, err := r.Part("output", func() error { return r.output(&m.Outputs[last]) })
		if err != nil {
			return err
		}
		if failure != nil {
			m.Unread = append(m.Unread, failure)
			m.Outputs = m.Outputs[:last]
		}
	}
	return nil
}

func (r *reader) output(o *Output) error {
	n, err := r.Array("output")
	if err != nil {
		return err
	}
	if n == 0 {
		return r.Corrupt("output", "a request id", "an empty array")
	}
	for i, f := range r.c.output[:min(n, len(r.c.output))] {
		failure, err := r.Part("output", func() error { return f.read(r, o, f.name) })
		switch {
		case err != nil:
			return err
		case failure == nil:
		case i == 0:
			return failure
		case f.needed:
			if o.Err == nil {
				o.Err = failure
			}
		default:
			o.Unread = append(o.Unread, failure)
		}
	}
	if n == 1 {
		o.Err = r.Corrupt("output", "new_token_ids", "an array of 1")
	}
	return r.skip("output", n-len(r.c.output))
}

// skip passes over n values, if any.
func (r *reader) skip(what string, n int) error {
	for range n {
		if err := r.Skip(what); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) answer(what string) (*Answer, error) {
	at := r.Pos()
	n, err := r.Array(what)
	if err != nil {
		return nil, err
	}
	if n < 1 {
		return nil, r.Corrupt(what, "a call id", "an empty array")
	}
	a := &Answer{}
	if a.CallID, err = r.Uint64("call_id"); err != nil {
		return nil, err
	}
	// Somebody waits for this call, so its id is worth more than the rest.
	a.Err = r.result(a, n)
	r.Seek(at)
	return a, r.Skip(what)
}

func (r *reader) result(a *Answer, n int) (err error) {
	if n > 1 {
		if a.Failure, err = codec.ReadOptional(r.Decoder, "failure_message", r.Text); err != nil {
			return err
		}
	}
	if n > 2 && !r.Nil() {
		if err := r.ArrayOf(2, "result"); err != nil {
			return err
		}
		if a.ResultType, err = pyvalue.Read(r.Decoder, "result type", false); err != nil {
			return err
		}
		a.Result, err = pyvalue.Read(r.Decoder, "result", false)
	}
	return err
}
