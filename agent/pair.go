package agent

import (
	"bytes"
	"errors"

	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/lrusync/upstream"
	"github.com/ringcache/ringcache/serde"
)

// pair is one end of a mirrored pair, or a frontend that has no other end.
type pair struct {
	cache
	frontend frontend // nil for a receiver
	sender   *upstream.SenderCache
	receiver *upstream.ReceiverCache[serde.Value]
	only     *upstream.ProcessorOnlyCache[serde.Value]
	python   lrusync.Python
}

// cache is what every role has.
type cache interface {
	Clear()
	Contents() ([]lrusync.KeySize, int64)
	Stats() lrusync.Stats
}

// frontend is what the roles in the frontend have.
type frontend interface {
	IsCached(keys ...string) []bool
	Touch(key string)
	Invalidate(key string)
}

func (a *Agent) pairOps() map[string]operation {
	return map[string]operation{
		"pair.new":        a.pairNew,
		"pair.cached":     a.onFrontend(pairCached),
		"pair.touch":      a.onFrontend(func(p *params, c *pair) (reply, error) { return onPairKey(p, c.frontend.Touch) }),
		"pair.invalidate": a.onFrontend(func(p *params, c *pair) (reply, error) { return onPairKey(p, c.frontend.Invalidate) }),
		"pair.update":     a.onFrontend(pairUpdate),
		"pair.features":   a.onPair(pairFeatures),
		"pair.clear":      a.onPair(func(_ *params, c *pair) (reply, error) { c.Clear(); return nil, nil }),
		"pair.state":      a.onPair(func(_ *params, c *pair) (reply, error) { return pairState(c), nil }),
		"pair.close":      a.onPair(func(p *params, _ *pair) (reply, error) { delete(a.pairs, p.str("pair")); return nil, nil }),
		"size_of":         sizeOf,
	}
}

func (a *Agent) onPair(f func(*params, *pair) (reply, error)) operation {
	return func(p *params) (reply, error) {
		name := p.str("pair")
		c, ok := a.pairs[name]
		if p.err == nil && !ok {
			p.fail("no pair %q", name)
		}
		if p.err != nil {
			return nil, p.err
		}
		return f(p, c)
	}
}

func (a *Agent) onFrontend(f func(*params, *pair) (reply, error)) operation {
	return a.onPair(func(p *params, c *pair) (reply, error) {
		if c.frontend == nil {
			return nil, unsupportedf("%s is for a sender or processor_only; this is a receiver", p.str("op"))
		}
		return f(p, c)
	})
}

func onPairKey(p *params, f func(string)) (reply, error) {
	key := p.str("key")
	if p.err != nil {
		return nil, p.err
	}
	f(key)
	return nil, nil
}

// pythonVersion is the field of that name: the interpreter whose sizes count.
func (p *params) pythonVersion() lrusync.Python {
	v, err := lrusync.ParsePython(optional(p, "python", "3.11"))
	if err != nil {
		p.fail("field \"python\": %w", err)
	}
	return v
}

func (a *Agent) pairNew(p *params) (reply, error) {
	name, role := p.str("pair"), p.str("role")
	c := &pair{python: p.pythonVersion()}
	o, err := cacheOptions(p)
	if err != nil {
		return nil, err
	}
	if _, ok := a.pairs[name]; ok {
		return nil, invalidf("pair %q exists", name)
	}
	switch role {
	case "sender":
		c.sender, err = upstream.NewSenderCache(o)
		c.cache, c.frontend = c.sender, c.sender
	case "receiver":
		c.receiver, err = upstream.NewReceiverCache[serde.Value](o)
		c.cache = c.receiver
	case "processor_only":
		c.only, err = upstream.NewProcessorOnlyCache[serde.Value](o)
		c.cache, c.frontend = c.only, c.only
	default:
		err = invalidf("unknown role %q, want sender, receiver or processor_only", role)
	}
	if err != nil {
		return nil, err
	}
	a.pairs[name] = c
	return nil, nil
}

func pairCached(p *params, c *pair) (reply, error) {
	keys := required[[]string](p, "keys")
	if p.err != nil {
		return nil, p.err
	}
	return reply{"cached": c.frontend.IsCached(keys...)}, nil
}

// sizedValue decodes a value that may be null or absent, then nil.
func (p *params) sizedValue(py lrusync.Python) (v serde.Value, size int64) {
	if !p.has("value") {
		return nil, 0
	}
	v = p.value("value", false)
	if p.err == nil {
		size, p.err = valueSize(v, py)
	}
	return v, size
}

func valueSize(v serde.Value, py lrusync.Python) (int64, error) {
	switch v := v.(type) {
	case *serde.Item:
		return lrusync.ItemSize(v, py)
	case *serde.Tensor:
		n, err := v.NBytes()
		return int64(n), err
	}
	return 0, unsupportedf("the size of a pickled object is known to Python only: want a value of type item or tensor")
}

func sizeOf(p *params) (reply, error) {
	v, size := p.sizedValue(p.pythonVersion())
	if v == nil {
		p.fail("field \"value\" is missing")
	}
	if p.err != nil {
		return nil, p.err
	}
	return reply{"bytes": size}, nil
}

// pairUpdate decides about one item. Prompt updates may be any JSON; they are
// kept as they are.
func pairUpdate(p *params, c *pair) (reply, error) {
	key := p.str("key")
	v, size := p.sizedValue(c.python)
	if p.err != nil {
		return nil, p.err
	}
	var in *upstream.Input
	if v != nil {
		in = &upstream.Input{Size: size}
		if p.has("prompt_updates") {
			in.Updates = bytes.Clone(p.fields["prompt_updates"])
		}
	}
	out := reply{"data": "sent"}
	var updates []byte
	var err error
	if c.sender != nil {
		var omit bool
		if omit, updates, err = c.sender.GetAndUpdate(key, in); omit {
			out["data"] = "omitted"
		}
	} else if v, updates, err = c.only.GetAndUpdate(key, v, in); err == nil {
		out["value"] = encodeValue(v)
	}
	if err != nil {
		return nil, err
	}
	if updates != nil {
		out["prompt_updates"] = rawJSON(updates)
	}
	return out, nil
}

func pairFeatures(p *params, c *pair) (reply, error) {
	if c.receiver == nil {
		return nil, unsupportedf("pair.features is for a receiver")
	}
	var fs []lrusync.Feature[serde.Value]
	for _, raw := range required[[]map[string]rawJSON](p, "features") {
		fs = append(fs, p.feature(raw, c.python))
	}
	if p.err != nil {
		return nil, p.err
	}
	got, err := c.receiver.GetAndUpdate(fs)
	if err != nil {
		return nil, err
	}
	values := make([]reply, len(got))
	for i, v := range got {
		values[i] = encodeValue(v)
	}
	return reply{"values": values}, nil
}

// feature decodes one of several features; its tensors count to the budget of
// all.
func (p *params) feature(raw map[string]rawJSON, py lrusync.Python) (f lrusync.Feature[serde.Value]) {
	if p.err != nil {
		return f
	}
	one := &params{fields: raw, budget: p.budget}
	one.allow("key", "identifier", "value")
	if one.has("identifier") && !one.has("key") {
		f.Identifier = one.str("identifier")
	} else {
		f.Key, f.Identifier = one.str("key"), optional(one, "identifier", "")
	}
	f.Value, f.Size = one.sizedValue(py)
	f.HasData = f.Value != nil
	p.budget, p.err = one.budget, one.err
	return f
}

func pairState(c *pair) reply {
	contents, size := c.Contents()
	order := make([]string, len(contents))
	for i, k := range contents {
		order[i] = k.Key
	}
	s := c.Stats()
	return reply{"order": order, "size": size, "hits": s.Hits, "total": s.Total}
}

// missedKeys are the keys that an error reports as missing, in the order of the
// request, or nil.
func missedKeys(err error) []string {
	var miss *upstream.MissError
	if !errors.As(err, &miss) {
		return nil
	}
	return miss.Keys
}
