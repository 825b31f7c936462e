package engine

import (
	"bytes"

	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/serde/enginecore"
)

// kept returns an output that shares no memory with the message that it came in: a
// reader may take its time, and a message has the outputs of all running requests.
func kept(o *enginecore.Output) *enginecore.Output {
	c := *o
	for _, v := range []*any{
		&c.Logprobs, &c.PromptLogprobs, &c.KVTransferParams, &c.ECTransferParams, &c.PrefillStats,
		&c.SamplingMask, &c.SpecDecodeMetrics, &c.PromptTokenIDLogprobs,
	} {
		*v = owned(*v)
	}
	if c.PoolingOutput != nil {
		c.PoolingOutput = owned(c.PoolingOutput).(*serde.Tensor)
	}
	if c.RoutedExperts != nil {
		c.RoutedExperts = owned(c.RoutedExperts).(*serde.NDArray)
	}
	return &c
}

// owned takes a decoded value, and returns it with copies of all bytes that belong to
// the message. Lists and maps are the decoder's own, and are changed.
func owned(v any) any {
	switch v := v.(type) {
	case []byte:
		return bytes.Clone(v)
	case *serde.Tensor:
		return &serde.Tensor{DType: v.DType, Shape: v.Shape, Data: bytes.Clone(v.Data)}
	case *serde.NDArray:
		return &serde.NDArray{DType: v.DType, Shape: v.Shape, Data: bytes.Clone(v.Data)}
	case *serde.Map:
		for i := range v.Values {
			v.Values[i] = owned(v.Values[i])
		}
	case []any:
		for i := range v {
			v[i] = owned(v[i])
		}
	case map[string]any:
		for k, x := range v {
			v[k] = owned(x)
		}
	}
	return v
}
