package engine

import (
	"slices"
	"time"

	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/serde"
)

// message is what is sent for a request. Its children differ in their ids and seeds.
type message struct {
	o      serde.Options
	core   serde.EngineCoreRequest
	params map[string]any
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
	if slices.Contains(s.gen.RequestFields, "external_req_id") {
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

// clone returns a copy of a request that was verified, which shares nothing with the
// caller's that may change behind Generate.
func (r Request) clone() Request {
	r.Prompt, r.Placeholders = slices.Clone(r.Prompt), slices.Clone(r.Placeholders)
	for i := range r.Placeholders {
		r.Placeholders[i].IsEmbed = slices.Clone(r.Placeholders[i].IsEmbed)
	}
	return r
}
