package enginecore

import (
	"maps"

	"github.com/ringcache/ringcache/internal/codec"
	"github.com/ringcache/ringcache/internal/pyvalue"
	"github.com/ringcache/ringcache/serde"
)

// EncodeUnchecked also encodes requests that no engine takes, which the golden files
// have.
func (c *Codec) EncodeUnchecked(r *Request) (*Message, error) { return c.encodeRequest(r) }

// DecodeOutputsUnguarded is DecodeOutputs where the document changes behind the guard.
func (c *Codec) DecodeOutputsUnguarded(frames [][]byte) (*Outputs, error) {
	return codec.DecodeUnguarded(frames, func(d *codec.Decoder) (*Outputs, error) {
		m := &Outputs{}
		return m, (&reader{d, c}).message(m)
	})
}

// EncodeFeature encodes a feature alone, EncodeFeatures a list.
func (c *Codec) EncodeFeature(f *Feature) ([][]byte, error) {
	return c.encodeAlone(func(w *writer) { w.feature(f) })
}

func (c *Codec) EncodeFeatures(fs []Feature) ([][]byte, error) {
	return c.encodeAlone(func(w *writer) { w.features(fs) })
}

// EncodeNDArray encodes an array alone, DecodeNDArray reads one.
func (c *Codec) EncodeNDArray(a *serde.NDArray) ([][]byte, error) {
	return c.encodeAlone(func(w *writer) { pyvalue.WriteNDArray(w.Encoder, a) })
}

func DecodeNDArray(frames [][]byte) (*serde.NDArray, error) {
	return codec.Decode(frames, pyvalue.ReadNDArray)
}

func DecodeNDArrayUnguarded(frames [][]byte) (*serde.NDArray, error) {
	return codec.DecodeUnguarded(frames, pyvalue.ReadNDArray)
}

func (c *Codec) encodeAlone(write func(*writer)) ([][]byte, error) {
	w := &writer{codec.NewEncoder(c.threshold), c, &Message{}}
	write(w)
	return w.Frames()
}

// The names that the tables have.
func RequestFieldNames() []string { return names(requestFields) }
func OutputsFieldNames() []string { return names(outputsFields) }
func OutputFieldNames() []string  { return names(outputFields) }
func SamplingNames() []string     { return names(samplingTable) }
func PoolingNames() []string      { return names(poolingTable) }
func LoRANames() []string         { return names(loraFields) }

func names[V any](m map[string]V) (out []string) {
	for name := range maps.Keys(m) {
		out = append(out, name)
	}
	return out
}

// Needed reports whether a frontend can't go on without a field of an Output.
func Needed(field string) bool { return outputFields[field].needed }
