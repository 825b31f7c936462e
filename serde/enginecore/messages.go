package serde

// MessageType is the frame in front of a message to EngineCore's input socket
// (EngineCoreRequestType in vllm/v1/engine/__init__.py).
type MessageType byte

// The types that a frontend sends. 4 and 5 are the engine's own.
const (
	MessageAdd         MessageType = 0 // frames of EncodeRequest
	MessageAbort       MessageType = 1 // EncodeAbort
	MessageStartDPWave MessageType = 2
	MessageUtility     MessageType = 3 // frames of EncodeUtility
)

// EngineDead is the one frame that EngineCore sends on its output socket when it
// dies (ENGINE_CORE_DEAD in vllm/v1/engine/core.py).
const EngineDead = "ENGINE_CORE_DEAD"

// IsEngineDead says whether a message of the output socket is [EngineDead].
func IsEngineDead(f Frames) bool { return len(f) == 1 && string(f[0]) == EngineDead }

// Frame returns the frame that stands for t.
func (t MessageType) Frame() []byte { return []byte{byte(t)} }

// EncodeAbort returns the body of an abort of these requests. The error wraps
// [ErrInvalid].
func EncodeAbort(ids []string) ([]byte, error) {
	e := newEncoder(Options{})
	e.texts(ids)
	return e.document()
}

// DecodeAbort reads the body of an abort. The error wraps [ErrCorrupt].
func DecodeAbort(b []byte) ([]string, error) {
	return decodeWhole(Frames{b}, Options{}, func(d *decoder) ([]string, error) { return d.texts("abort") })
}

// document is frames for messages of one frame.
func (e *encoder) document() ([]byte, error) {
	f, err := e.filled()
	if err != nil {
		return nil, err
	}
	if len(f) > 1 {
		return nil, &InvalidError{"tensor", "this message has one frame only; a tensor of that size needs one of its own"}
	}
	return f[0], nil
}

// UtilityCall is the body of a [MessageUtility]: a call of a method of
// EngineCore, answered by a [UtilityOutput] with the same CallID.
type UtilityCall struct {
	ClientIndex int
	CallID      uint64
	Method      string
	// Args are values as [Params] has them. A *[Tensor] arrives as the list that
	// it is encoded as: EngineCore does not know what type to expect.
	Args []any
}

// EncodeUtility returns the frames of a call. The error wraps [ErrInvalid].
func EncodeUtility(c *UtilityCall, o Options) (Frames, error) {
	if c == nil {
		return nil, &InvalidError{"utility call", "it is a nil *UtilityCall"}
	}
	e := newEncoder(o)
	e.array(4)
	e.int(c.ClientIndex)
	e.keep(e.mp.EncodeUint(c.CallID))
	e.str(c.Method)
	e.anything("field args", c.Args)
	return e.filled()
}

// DecodeUtility reads a call; Args are values as [DecodeOutputs] has them. The
// error wraps [ErrCorrupt] or [ErrUnsupported].
func DecodeUtility(f Frames, o Options) (*UtilityCall, error) {
	return decodeWhole(f, o, func(d *decoder) (*UtilityCall, error) {
		d.anyFrames = true
		c := &UtilityCall{}
		err := d.arrayOf(4, "utility call")
		if err == nil {
			c.ClientIndex, err = d.anyInt("client_index")
		}
		if err == nil {
			c.CallID, err = d.uint64("call_id")
		}
		if err == nil {
			c.Method, err = d.text("method")
		}
		if err != nil {
			return nil, err
		}
		if err := d.expect(kindArray, "args"); err != nil {
			return nil, err
		}
		args, err := d.anything("args", false)
		c.Args = list(args)
		return c, err
	})
}
