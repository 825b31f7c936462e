package serde

// The states of a [Handshake].
const (
	StatusHello = "HELLO" // the engine wants its addresses
	StatusReady = "READY" // the engine has started
)

// Handshake is what EngineCore sends on the handshake socket
// (vllm/v1/engine/core.py, all releases).
type Handshake struct {
	Status   string
	Local    bool
	Headless bool
	// NumGPUBlocks and DPStatsAddress come with READY until 0.19.1; from 0.20.0
	// on they are in [Ready].
	NumGPUBlocks   *int
	DPStatsAddress *string
	// ParallelConfigHash comes with READY where engines work data parallel.
	ParallelConfigHash *string
	// Rest is whatever else there is; values as [DecodeOutputs] has them.
	Rest map[string]any
}

// EncodeHandshake returns the message. The error wraps [ErrInvalid].
func EncodeHandshake(h *Handshake) ([]byte, error) {
	if h == nil {
		return nil, &InvalidError{"handshake", "it is a nil *Handshake"}
	}
	m := &Map{Keys: []any{"status", "local", "headless"}, Values: []any{h.Status, h.Local, h.Headless}}
	add := func(name string, v any) { m.Keys, m.Values = append(m.Keys, name), append(m.Values, v) }
	if h.NumGPUBlocks != nil {
		add("num_gpu_blocks", *h.NumGPUBlocks)
	}
	// Where there is the one there is the other, also as None.
	if h.NumGPUBlocks != nil || h.DPStatsAddress != nil {
		add("dp_stats_address", textOrNone(h.DPStatsAddress))
	}
	if h.ParallelConfigHash != nil {
		add("parallel_config_hash", *h.ParallelConfigHash)
	}
	for _, k := range sortedKeys(h.Rest) {
		add(k, h.Rest[k])
	}
	return encodeMap("handshake", m)
}

func encodeMap(what string, m *Map) ([]byte, error) {
	e := newEncoder(Options{})
	e.anything(what, m)
	return e.document()
}

func textOrNone(s *string) any {
	if s == nil {
		return nil
	}
	return *s
}

// DecodeHandshake reads a message of the handshake socket. The error wraps
// [ErrCorrupt] or [ErrUnsupported].
func DecodeHandshake(b []byte) (*Handshake, error) {
	rest, err := decodeMap("handshake", b)
	if err != nil {
		return nil, err
	}
	h := &Handshake{Rest: rest}
	if !take(rest, "status", &h.Status) || !take(rest, "local", &h.Local) || !take(rest, "headless", &h.Headless) {
		return nil, &CorruptError{What: "handshake", Offset: 0, Want: "status, local and headless", Got: "a map without them"}
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
	return decodeWhole(Frames{b}, Options{}, func(d *decoder) (map[string]any, error) { return d.anyMapOf(what) })
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
	// ParallelConfig has values as [Params] has them; empty is fine for one
	// engine.
	ParallelConfig map[string]any
	// ParallelConfigHash is not written if nil. 0.11.1 to 0.13.0 know it.
	ParallelConfigHash *string
}

// EncodeInit returns the message, the same for all releases. The error wraps
// [ErrInvalid].
func EncodeInit(i *Init) ([]byte, error) {
	if i == nil {
		return nil, &InvalidError{"init message", "it is a nil *Init"}
	}
	m := &Map{
		Keys: []any{"addresses", "parallel_config"},
		Values: []any{&Map{
			Keys: []any{"inputs", "outputs", "coordinator_input", "coordinator_output", "frontend_stats_publish_address"},
			Values: []any{i.Inputs, i.Outputs, textOrNone(i.CoordinatorInput), textOrNone(i.CoordinatorOutput),
				textOrNone(i.FrontendStatsPublishAddress)},
		}, i.ParallelConfig},
	}
	if i.ParallelConfigHash != nil {
		m.Keys, m.Values = append(m.Keys, "parallel_config_hash"), append(m.Values, *i.ParallelConfigHash)
	}
	return encodeMap("init message", m)
}

// DecodeInit reads the message. The error wraps [ErrCorrupt] or
// [ErrUnsupported].
func DecodeInit(b []byte) (*Init, error) {
	m, err := decodeMap("init message", b)
	if err != nil {
		return nil, err
	}
	i := &Init{}
	var addresses map[string]any
	if !take(m, "addresses", &addresses) || !take(m, "parallel_config", &i.ParallelConfig) ||
		!takeTexts(addresses, "inputs", &i.Inputs) || !takeTexts(addresses, "outputs", &i.Outputs) {
		return nil, &CorruptError{What: "init message", Offset: 0, Want: "addresses with inputs and outputs, and parallel_config", Got: "a map without them"}
	}
	takeOptional(addresses, "coordinator_input", &i.CoordinatorInput)
	takeOptional(addresses, "coordinator_output", &i.CoordinatorOutput)
	takeOptional(addresses, "frontend_stats_publish_address", &i.FrontendStatsPublishAddress)
	takeOptional(m, "parallel_config_hash", &i.ParallelConfigHash)
	return i, nil
}

func takeTexts(m map[string]any, name string, to *[]string) bool {
	l, fits := m[name].([]any)
	for _, v := range l {
		s, isText := v.(string)
		if !isText {
			return false
		}
		*to = append(*to, s)
	}
	return fits
}
