package engine

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/serde"
)

// Params are sampling parameters, see [serde.Params]. Numbers that are whole for
// vLLM, such as "max_tokens", must be of a whole type here: of JSON, use
// json.Decoder.UseNumber and tell them apart.
type Params = serde.Params

// Request is a prompt to be completed.
type Request struct {
	// ID is for messages and logs; the engine gets one of its own.
	ID string
	// Prompt are its tokens, with the placeholders of items expanded.
	Prompt []uint32
	// Params are the sampling parameters. "n" above 1 runs as many children, whose
	// outputs have an Index. Without "max_tokens" vLLM makes 16 tokens.
	Params Params
	// EOS is the token that ends a text, nil for none. If there are more of them (as
	// generation_config.json may say) they belong into "stop_token_ids".
	EOS *uint32

	// Items are the request's multimodal items, every one obtained; nil if there
	// are none. Generate commits them, and ends them with the stream. If it fails
	// they are as before, for Rollback or another try.
	Items *mmcache.Request
	// Placeholders say where in the prompt the items belong, one for each, in
	// their order, which is that of the prompt.
	Placeholders []Placeholder

	// More has further fields of the message, such as Priority or CacheSalt. What
	// the fields above say is not taken from it, nor ids and the time of arrival;
	// prompts of embeddings are not supported. What it points to must not change
	// before the stream has ended.
	More serde.EngineCoreRequest
}

// Placeholder is an item's range in the prompt.
type Placeholder struct {
	// Modality is that of the item; empty is "image".
	Modality string
	// Offset is the place of the first token, Length the number of tokens.
	Offset, Length int
	// IsEmbed says for each token of the range whether it takes an embedding; nil
	// if all do.
	IsEmbed []bool
}

func (p Placeholder) modality() string {
	if p.Modality == "" {
		return "image"
	}
	return p.Modality
}

// embeds returns the number of embeddings that the range takes.
func (p Placeholder) embeds() int {
	if p.IsEmbed == nil {
		return p.Length
	}
	n := 0
	for _, e := range p.IsEmbed {
		if e {
			n++
		}
	}
	return n
}

// feature returns what is sent for an item.
func (p Placeholder) feature(w mmcache.Wire) serde.Feature {
	f := serde.Feature{
		Data: w.Item, Modality: p.modality(), Identifier: w.Key, MMHash: &w.Key,
		Offset: p.Offset, Length: p.Length,
	}
	if p.IsEmbed != nil {
		mask := make([]byte, len(p.IsEmbed))
		for i, e := range p.IsEmbed {
			if e {
				mask[i] = 1
			}
		}
		f.IsEmbed = &serde.Tensor{DType: serde.DTypeBool, Shape: []int{len(mask)}, Data: mask}
	}
	return f
}

// features returns what is sent for the items.
func (r *Request) features(items []mmcache.Wire) []serde.Feature {
	var features []serde.Feature
	for i, w := range items {
		features = append(features, r.Placeholders[i].feature(w))
	}
	return features
}

// message encodes what is sent for one child, each of which is a request of its own
// (vllm/v1/engine/parallel_sampling.py fans out in the same way).
func (r *Request) message(ids []string, child int, features []serde.Feature, o serde.Options) (serde.Frames, error) {
	m := r.More
	m.RequestID, m.PromptTokenIDs, m.Features = ids[child], r.Prompt, features
	m.EOSTokenID = r.EOS
	m.ArrivalTime = float64(time.Now().UnixMicro()) / 1e6
	m.SamplingParams = r.child(child, len(ids))
	if slices.Contains(o.Generation.RequestFields, "external_req_id") {
		m.ExternalReqID = &r.ID
	}
	return serde.EncodeRequest(&m, o)
}

// child returns the parameters of one of n children. Each of several has a seed
// of its own; -1 is none for vLLM.
func (r *Request) child(i, n int) Params {
	p := maps.Clone(r.Params)
	if p == nil {
		p = Params{}
	}
	delete(p, "n")
	if n == 1 {
		return p
	}
	switch v := reflect.ValueOf(p["seed"]); {
	case v.CanInt() && v.Int() != -1:
		p["seed"] = v.Int() + int64(i)
	case v.CanUint():
		p["seed"] = v.Uint() + uint64(i)
	}
	return p
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

// children returns the number of sequences that are asked for.
func (r *Request) children() (int, error) {
	v, ok := r.Params["n"]
	if !ok {
		return 1, nil
	}
	n, err := integer(v)
	if err == nil && (n < 1 || n > maxChildren) {
		err = fmt.Errorf("%d is not between 1 and %d", n, maxChildren)
	}
	return int(n), err
}

// maxChildren is VLLM_MAX_N_SEQUENCES of vllm/envs.py.
const maxChildren = 16384
