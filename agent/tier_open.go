package agent

import (
	"context"
	"maps"
	"slices"

	"github.com/ringcache/ringcache/internal/location"
	"github.com/ringcache/ringcache/tier"
)

// lowerJSON is a level below memory, of a store.
type lowerJSON struct {
	Tier  string `json:"tier"`
	Write string `json:"write"`
}

var writePolicies = map[string]tier.Write{
	"": tier.Through, "through": tier.Through, "back": tier.Back, "around": tier.Around,
}

func (a *Agent) tierOpen(p *params) (reply, error) {
	name := unused(p, "tier", a.levels)
	open := a.openStore
	if p.has("level") {
		open = a.openLevel
	}
	l, err := open(p)
	if err != nil {
		return nil, err
	}
	l.leases = map[string]tier.Lease{}
	a.levels[name] = l
	return nil, nil
}

// openLevel opens what one text names: see package location.
func (a *Agent) openLevel(p *params) (*level, error) {
	text := p.str("level")
	o := location.Options{
		ShmDir: a.dir, Size: int64(optional(p, "size", 0)), Capacity: optional(p, "capacity", int64(0)),
	}
	if err := a.sizeAllowed(int(o.Size)); err != nil {
		return nil, err
	}
	at, err := location.Parse(text)
	if err != nil {
		return nil, err
	}
	if at, err = at.Identify(true); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), tierTime)
	defer cancel()
	opened, err := at.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	l := &level{levelCalls: opened, level: opened}
	l.memory, _ = opened.(tier.MemoryLevel)
	return l, nil
}

func (a *Agent) openStore(p *params) (*level, error) {
	top, lower := p.str("memory"), optional(p, "lower", []lowerJSON(nil))
	m, ok := a.levels[top]
	if !ok || m.memory == nil || m.store != nil {
		return nil, invalidf("no tier %q of the kind memory", top)
	}
	if m.users > 0 {
		return nil, invalidf("another store uses the tier %q", top)
	}
	o, names := tier.Options{Memory: m.memory}, []string{top}
	for _, j := range lower {
		l, ok := a.levels[j.Tier]
		if !ok || l.level == nil {
			return nil, invalidf("no tier %q that can be below another", j.Tier)
		}
		policy, ok := writePolicies[j.Write]
		if !ok {
			return nil, invalidf("unknown write %q, want one of %v", j.Write, slices.Sorted(maps.Keys(writePolicies)))
		}
		o.Lower = append(o.Lower, tier.Lower{Level: l.level, Write: policy})
		names = append(names, j.Tier)
	}
	ctx, cancel := context.WithTimeout(context.Background(), tierTime)
	defer cancel()
	s, err := tier.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		a.levels[n].users++
	}
	return &level{levelCalls: s, store: s, memory: m.memory, lower: names}, nil
}
