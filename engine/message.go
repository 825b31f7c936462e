package engine

import (
	"reflect"
	"slices"
	"time"

	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/serde"
)

// message is what is sent for a request. Its children differ in their ids and seeds.
type message struct {
	o      serde.Options
	core   serde.EngineCoreRequest
	params Params
	tokens []int // of the items
}

// message verifies the items of a request, and prepares what is sent.
func (s *session) message(r *Request, items []mmcache.Wire) (*message, error) {
	tokens, err := s.items(r, items)
	if err != nil {
		return nil, err
	}
	m := &message{o: s.options(), params: r.Params, tokens: tokens}
	m.core = serde.EngineCoreRequest{
		PromptTokenIDs: r.Prompt, EOSTokenID: r.EOS, ArrivalTime: float64(time.Now().UnixMicro()) / 1e6,
		Priority: r.Priority, CacheSalt: optional(r.CacheSalt), SessionID: optional(r.SessionID), TraceHeaders: r.TraceHeaders,
		ReasoningEnded: r.ReasoningEnded, ReasoningParserKwargs: r.ReasoningParserKwargs, KVHints: r.KVHints,
	}
	for i, w := range items {
		m.core.Features = append(m.core.Features, r.Placeholders[i].feature(w))
	}
	if s.gen.RequestFields.Has("external_req_id") {
		m.core.ExternalReqID = &r.ID
	}
	return m, nil
}

func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// child encodes what is sent for one child, each of which is a request of its own
// (vllm/v1/engine/parallel_sampling.py fans out in the same way).
func (m *message) child(i int, children []child) (serde.Frames, error) {
	r := m.core
	r.RequestID = children[i].id
	r.SamplingParams = childParams(m.params, i, len(children))
	return serde.EncodeRequest(&r, m.o)
}

// clone returns a copy that shares nothing with the caller's which may change
// behind Generate.
func (r Request) clone() Request {
	r.Prompt, r.Placeholders = slices.Clone(r.Prompt), slices.Clone(r.Placeholders)
	for i := range r.Placeholders {
		r.Placeholders[i].IsEmbed = slices.Clone(r.Placeholders[i].IsEmbed)
	}
	p := make(Params, len(r.Params))
	for k, v := range r.Params {
		if v != nil {
			v = deepCopy(reflect.ValueOf(v)).Interface()
		}
		p[k] = v
	}
	r.Params = p
	return r
}

func deepCopy(v reflect.Value) reflect.Value {
	switch {
	case v.Kind() == reflect.Interface && !v.IsNil():
		return deepCopy(v.Elem())
	case v.Kind() == reflect.Slice && !v.IsNil():
		c := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		for i := range v.Len() {
			c.Index(i).Set(deepCopy(v.Index(i)))
		}
		return c
	case v.Kind() == reflect.Map && !v.IsNil():
		c := reflect.MakeMapWithSize(v.Type(), v.Len())
		for it := v.MapRange(); it.Next(); {
			c.SetMapIndex(it.Key(), deepCopy(it.Value()))
		}
		return c
	}
	return v
}
