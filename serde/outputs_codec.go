package serde

import (
	"fmt"
	"slices"

	"github.com/ringcache/ringcache/internal/msgpackguard"
)

// messageTable has the fields of EngineCoreOutputs.
var messageTable = map[string]struct {
	set    func(*EngineCoreOutputs) bool
	encode func(*encoder, *EngineCoreOutputs)
	decode func(*decoder, *EngineCoreOutputs) error
}{
	"engine_index": {
		set:    func(m *EngineCoreOutputs) bool { return m.EngineIndex != 0 },
		encode: func(e *encoder, m *EngineCoreOutputs) { e.int(m.EngineIndex) },
		decode: func(d *decoder, m *EngineCoreOutputs) (err error) {
			m.EngineIndex, err = d.anyInt("engine_index")
			return err
		},
	},
	"outputs": {
		set:    func(m *EngineCoreOutputs) bool { return m.Outputs != nil },
		encode: func(e *encoder, m *EngineCoreOutputs) { e.outputs(m.Outputs) },
		decode: (*decoder).outputs,
	},
	"scheduler_stats": {
		set:    func(m *EngineCoreOutputs) bool { return m.SchedulerStats != nil },
		encode: func(e *encoder, m *EngineCoreOutputs) { e.anything("field scheduler_stats", m.SchedulerStats) },
		decode: func(d *decoder, m *EngineCoreOutputs) (err error) {
			m.SchedulerStats, err = d.anything("scheduler_stats", false)
			return err
		},
	},
	"timestamp": {
		set:    func(m *EngineCoreOutputs) bool { return m.Timestamp != 0 },
		encode: func(e *encoder, m *EngineCoreOutputs) { e.float(m.Timestamp) },
		decode: func(d *decoder, m *EngineCoreOutputs) (err error) {
			m.Timestamp, err = d.float("timestamp")
			return err
		},
	},
	"utility_output": {
		set:    func(m *EngineCoreOutputs) bool { return m.UtilityOutput != nil },
		encode: func(e *encoder, m *EngineCoreOutputs) { e.utilityOutput(m.UtilityOutput) },
		decode: func(d *decoder, m *EngineCoreOutputs) (err error) {
			if !d.null() {
				m.UtilityOutput, err = d.utilityOutput()
			}
			return err
		},
	},
	"finished_requests": {
		set: func(m *EngineCoreOutputs) bool { return m.FinishedRequests != nil },
		encode: func(e *encoder, m *EngineCoreOutputs) {
			if m.FinishedRequests == nil {
				e.null()
				return
			}
			e.texts(m.FinishedRequests)
		},
		decode: func(d *decoder, m *EngineCoreOutputs) (err error) {
			if !d.null() {
				m.FinishedRequests, err = d.texts("finished_requests")
			}
			return err
		},
	},
	"wave_complete": {
		set:    func(m *EngineCoreOutputs) bool { return m.WaveComplete != nil },
		encode: func(e *encoder, m *EngineCoreOutputs) { encodeOptional(e, m.WaveComplete, (*encoder).int) },
		decode: func(d *decoder, m *EngineCoreOutputs) (err error) {
			m.WaveComplete, err = optionalValue(d, "wave_complete", d.anyInt)
			return err
		},
	},
	"start_wave": {
		set:    func(m *EngineCoreOutputs) bool { return m.StartWave != nil },
		encode: func(e *encoder, m *EngineCoreOutputs) { encodeOptional(e, m.StartWave, (*encoder).int) },
		decode: func(d *decoder, m *EngineCoreOutputs) (err error) {
			m.StartWave, err = optionalValue(d, "start_wave", d.anyInt)
			return err
		},
	},
	"weight_version": {
		set:    func(m *EngineCoreOutputs) bool { return m.WeightVersion != nil },
		encode: func(e *encoder, m *EngineCoreOutputs) { encodeOptional(e, m.WeightVersion, (*encoder).str) },
		decode: func(d *decoder, m *EngineCoreOutputs) (err error) {
			m.WeightVersion, err = optionalValue(d, "weight_version", d.text)
			return err
		},
	},
}

var messageNames, outputNames = sortedKeys(messageTable), sortedKeys(outputTable)

// EncodeOutputs returns the frames of a message, as the engine sends it; for
// tests and engines of one's own. A field that is set and that the generation
// does not have is an error. The error wraps [ErrInvalid].
func EncodeOutputs(m *EngineCoreOutputs, o Options) (Frames, error) {
	if m == nil {
		return nil, &InvalidError{"outputs", "it is a nil *EngineCoreOutputs"}
	}
	e := newEncoder(o)
	for _, name := range messageNames {
		if messageTable[name].set(m) && !slices.Contains(e.gen.OutputsFields, name) {
			return nil, &InvalidError{"field " + name, fmt.Sprintf("vLLM %s has none; leave it unset", e.gen.Version)}
		}
	}
	names := e.gen.OutputsFields
	e.array(len(names))
	for _, name := range names {
		messageTable[name].encode(e, m)
	}
	return e.filled()
}

func (e *encoder) outputs(list []EngineCoreOutput) {
	e.array(len(list))
	names := e.gen.OutputFields
	for i := range list {
		o := &list[i]
		for _, name := range outputNames {
			if outputTable[name].set(o) && !slices.Contains(e.gen.OutputFields, name) {
				e.invalid("field "+name, "vLLM %s has none; leave it unset", e.gen.Version)
			}
		}
		e.array(len(names))
		for _, name := range names {
			outputTable[name].encode(e, o)
		}
		if e.err != nil {
			return
		}
	}
}

func (e *encoder) utilityOutput(u *UtilityOutput) {
	if u == nil {
		e.null()
		return
	}
	e.array(3)
	e.keep(e.mp.EncodeUint(u.CallID))
	encodeOptional(e, u.Failure, (*encoder).str)
	if u.Failure != nil {
		e.null()
		return
	}
	e.array(2)
	e.anything("field result", u.ResultType)
	e.anything("field result", u.Result)
}

// DecodeOutputs reads a message of the output socket. It is made to lose as
// little as possible: longer arrays, shorter ones and unknown numbers are
// accepted, and what cannot be read in one part does not take the others with
// it (see Err and Unread). Tensors and arrays are views of f.
//
// A value of type any is nil, bool, int64 (uint64 above the largest), float64,
// string, []byte, []any, map[string]any, *[Map] where a key is no string, or,
// where Python expects one, a *[Tensor] or *[NDArray].
//
// The error wraps [ErrCorrupt]: this is no such message at all. Ask
// [IsEngineDead] first.
func DecodeOutputs(f Frames, o Options) (*EngineCoreOutputs, error) {
	return decodeWhole(f, o, (*decoder).message)
}

func (d *decoder) message() (*EngineCoreOutputs, error) {
	d.anyFrames = true
	n, err := d.array("outputs message")
	if err != nil {
		return nil, err
	}
	m := &EngineCoreOutputs{}
	names := d.gen.OutputsFields
	for i := range n {
		name := ""
		if i < len(names) {
			name = names[i]
		}
		failure, err := d.part(name, func() error {
			if name == "" {
				return d.skip("outputs message")
			}
			return messageTable[name].decode(d, m)
		})
		if err != nil {
			return nil, err
		}
		if failure != nil {
			m.Unread = append(m.Unread, failure)
		}
	}
	return m, nil
}

// part reads one value and stands behind it afterwards, whether it could be read
// or not. The second error ends it all.
func (d *decoder) part(what string, read func() error) (failure, err error) {
	end, err := msgpackguard.Next(d.doc, d.pos(), guardLimits)
	if err != nil {
		return nil, d.broken(what, err)
	}
	if failure = read(); failure != nil {
		if err := d.charge(what, costError); err != nil {
			return nil, err
		}
	}
	d.seek(end)
	return failure, nil
}

const costOutput = 400

// outputs reads the entries that can be told whose they are; for the others
// there is an error in m.Unread.
func (d *decoder) outputs(m *EngineCoreOutputs) error {
	n, err := d.array("outputs")
	if err != nil {
		return err
	}
	names := d.gen.OutputFields
	fields := make([]outputField, len(names))
	for i, name := range names {
		fields[i] = outputTable[name]
	}
	m.Outputs = make([]EngineCoreOutput, 0, small(n))
	for range n {
		if err := d.charge("outputs", costOutput); err != nil {
			return err
		}
		var o EngineCoreOutput
		failure, err := d.part("output", func() error { return d.output(&o, names, fields) })
		if err != nil {
			return err
		}
		if failure != nil {
			m.Unread = append(m.Unread, failure)
			continue
		}
		m.Outputs = append(m.Outputs, o)
	}
	return nil
}

func (d *decoder) output(o *EngineCoreOutput, names []string, fields []outputField) error {
	n, err := d.array("output")
	if err != nil {
		return err
	}
	if n == 0 {
		return d.corrupt("output", "a request id", "an empty array")
	}
	for i := range min(n, len(names)) {
		failure, err := d.part(names[i], func() error { return fields[i].decode(d, o) })
		switch {
		case err != nil:
			return err
		case failure == nil:
		case i == 0:
			return failure
		case fields[i].needed:
			if o.Err == nil {
				o.Err = failure
			}
		default:
			o.Unread = append(o.Unread, failure)
		}
	}
	if n == 1 {
		o.Err = d.corrupt("output", "new_token_ids", "an array of 1")
	}
	return nil
}

func (d *decoder) utilityOutput() (*UtilityOutput, error) {
	const what = "utility_output"
	n, err := d.array(what)
	if err != nil {
		return nil, err
	}
	if n < 1 {
		return nil, d.corrupt(what, "a call id", "an empty array")
	}
	u := &UtilityOutput{}
	if u.CallID, err = d.uint64("call_id"); err != nil {
		return nil, err
	}
	// Somebody waits for this call, so its id is worth more than the rest.
	u.Err = d.utilityResult(u, n)
	return u, nil
}

func (d *decoder) utilityResult(u *UtilityOutput, n int) (err error) {
	if n > 1 {
		if u.Failure, err = optionalValue(d, "failure_message", d.text); err != nil {
			return err
		}
	}
	if n > 2 && !d.null() {
		if err := d.arrayOf(2, "result"); err != nil {
			return err
		}
		if u.ResultType, err = d.anything("result type", false); err != nil {
			return err
		}
		u.Result, err = d.anything("result", false)
	}
	return err
}

func (d *decoder) uint64(what string) (uint64, error) {
	switch n, err := d.number(what); n := n.(type) {
	case Uint:
		return uint64(n), err
	case Int:
		if n < 0 {
			return 0, d.corrupt(what, "0 or more", fmt.Sprint(n))
		}
		return uint64(n), err
	default:
		return 0, err
	}
}
