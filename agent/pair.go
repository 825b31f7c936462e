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
		"pair.new":        {"pair role capacity generation treat_as python", a.pairNew},
		"pair.cached":     {"pair keys", a.onFrontend(pairCached)},
		"pair.touch":      {"pair key", a.onFrontend(pairTouch)},
		"pair.invalidate": {"pair key", a.onFrontend(pairInvalidate)},
		"pair.update":     {"pair key value prompt_updates", a.onFrontend(pairUpdate)},
		"pair.features":   {"pair features", on("pair", a.pairs, pairFeatures)},
		"pair.clear":      {"pair key", on("pair", a.pairs, pairClear)},
		"pair.state":      {"pair key", on("pair", a.pairs, pairState)},
		"pair.close":      {"pair", forget("pair", a.pairs)},
		"size_of":         {"value python", sizeOf},
	}
}

func (a *Agent) onFrontend(f func(*params, *pair) (reply, error)) func(*params) (reply, error) {
	return on("pair", a.pairs, func(p *params, c *pair) (reply, error) {
		if c.frontend == nil {
			return nil, unsupportedf("%s is for a sender or processor_only; this is a receiver", p.str("op"))
		}
		return f(p, c)
	})
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
	name, role := unused(p, "pair", a.pairs), p.str("role")
	c := &pair{python: p.pythonVersion()}
	o, err := cacheOptions(p)
	if err != nil {
		return nil, err
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

func pairTouch(p *params, c *pair) (reply, error) { c.frontend.Touch(p.str("key")); return nil, nil }

func pairInvalidate(p *params, c *pair) (reply, error) {
	c.frontend.Invalidate(p.str("key"))
	return nil, nil
}

func pairClear(_ *params, c *pair) (reply, error) { c.Clear(); return nil, nil }

func pairCached(p *params, c *pair) (reply, error) {
	return reply{"cached": c.frontend.IsCached(required[[]string](p, "keys")...)}, nil
}

// sizedValue decodes a value that may be null or absent, then nil.
func (p *params) sizedValue(py lrusync.Python) (v serde.Value, size int64) {
	if !p.has("value") {
		return nil, 0
	}
	v = p.value("value", false)
	size, err := valueSize(v, py)
	if err != nil {
		panic(refusal{err})
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
	return reply{"bytes": size}, nil
}

// pairUpdate decides about one item. Prompt updates may be any JSON; they are
// kept as they are.
func pairUpdate(p *params, c *pair) (reply, error) {
	key := p.str("key")
	v, size := p.sizedValue(c.python)
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
	one := &params{fields: raw, budget: p.budget}
	one.allow("key", "identifier", "value")
	if one.has("identifier") && !one.has("key") {
		f.Identifier = one.str("identifier")
	} else {
		f.Key, f.Identifier = one.str("key"), optional(one, "identifier", "")
	}
	f.Value, f.Size = one.sizedValue(py)
	f.HasData = f.Value != nil
	p.budget = one.budget
	return f
}

func pairState(_ *params, c *pair) (reply, error) {
	contents, size := c.Contents()
	order := make([]string, len(contents))
	for i, k := range contents {
		order[i] = k.Key
	}
	s := c.Stats()
	return reply{"order": order, "size": size, "hits": s.Hits, "total": s.Total}, nil
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
