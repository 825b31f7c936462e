package engine

import (
	"slices"
	"time"

	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/serde/enginecore"
)

// message is what is sent for a request. It is encoded once for all children, which
// differ in their ids and seeds.
type message struct {
	encoded *enginecore.Message
	tokens  []int // of the items
}

// message verifies the items of a request, and encodes it under the id of one child, whose message is then not copied.
func (s *session) message(r *Request, id string, items []mmcache.Wire) (*message, error) {
	tokens, err := s.items(r, items)
	if err != nil {
		return nil, err
	}
	core := &enginecore.Request{
		RequestID: id, PromptTokenIDs: r.Prompt, Params: r.params, EOSTokenID: r.EOS,
		ArrivalTime: float64(time.Now().UnixMicro()) / 1e6,
		Priority:    r.Priority, CacheSalt: optional(r.CacheSalt), SessionID: optional(r.SessionID),
		TraceHeaders:   r.TraceHeaders,
		ReasoningEnded: r.ReasoningEnded, ReasoningParserKwargs: r.ReasoningParserKwargs, KVHints: r.KVHints,
	}
	if len(items) > 0 {
		core.Features = make([]enginecore.Feature, len(items))
	}
	for i := range items {
		core.Features[i] = r.Placeholders[i].feature(&items[i])
	}
	if slices.Contains(s.gen.RequestFields, "external_req_id") {
		core.ExternalReqID = &r.ID
	}
	encoded, err := s.codec.Load().EncodeRequest(core)
	if err != nil {
		return nil, r.refuse("message", err)
	}
	return &message{encoded, tokens}, nil
}

func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
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
