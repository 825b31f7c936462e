package agent

import (
	"context"
	"maps"
	"slices"

	"github.com/ringcache/ringcache/encoder"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/disk"
	"github.com/ringcache/ringcache/tier/memory"
	"github.com/ringcache/ringcache/tier/redis"
)

// lowerJSON is a level below memory, of a store.
type lowerJSON struct {
	Tier  string `json:"tier"`
	Write string `json:"write"`
}

var writePolicies = map[string]tier.Write{"": tier.Through, "through": tier.Through, "back": tier.Back, "around": tier.Around}

func (a *Agent) tierOpen(p *params) (reply, error) {
	name, kind := p.str("tier"), p.str("kind")
	if p.err != nil {
		return nil, p.err
	}
	if _, ok := a.levels[name]; ok {
		return nil, invalidf("tier %q exists", name)
	}
	open, ok := map[string]func(*params) (*level, error){
		"memory": a.openMemory, "disk": openDisk, "redis": openRedis, "store": a.openStore,
	}[kind]
	if !ok {
		return nil, invalidf("unknown kind %q, want memory, disk, redis or store", kind)
	}
	l, err := open(p)
	if err != nil {
		return nil, err
	}
	l.leases = map[string]tier.Lease{}
	a.levels[name] = l
	return nil, nil
}

func (a *Agent) openMemory(p *params) (*level, error) {
	o := memory.Options{Name: p.str("name"), Size: int64(p.int("size")), Dir: a.dir}
	if p.err != nil {
		return nil, p.err
	}
	if err := a.sizeAllowed(int(o.Size)); err != nil {
		return nil, err
	}
	l, err := memory.Open(o)
	if err != nil {
		return nil, err
	}
	return &level{levelCalls: l, level: l, memory: l}, nil
}

func openDisk(p *params) (*level, error) {
	root, layout := p.str("root"), optional(p, "layout", "native")
	o := disk.Options{Space: optional(p, "space", ""), Capacity: optional(p, "capacity", int64(0))}
	switch layout {
	case disk.Native{}.Name():
	case encoder.Tree{}.Name():
		o.Layout, o.Shared = encoder.Tree{}, true
	case disk.LMCache{}.Name():
		o.Layout, o.Shared = disk.LMCache{}, true
	default:
		p.fail("unknown layout %q, want %s, %s or %s", layout, disk.Native{}.Name(), encoder.Tree{}.Name(), disk.LMCache{}.Name())
	}
	if p.err != nil {
		return nil, p.err
	}
	l, err := disk.Open(root, o)
	if err != nil {
		return nil, err
	}
	return &level{levelCalls: l, level: l}, nil
}

func openRedis(p *params) (*level, error) {
	url := p.str("url")
	if p.err != nil {
		return nil, p.err
	}
	ctx, cancel := context.WithTimeout(context.Background(), tierTime)
	defer cancel()
	l, err := redis.Open(ctx, redis.Options{URL: url})
	if err != nil {
		return nil, err
	}
	return &level{levelCalls: l, level: l}, nil
}

func (a *Agent) openStore(p *params) (*level, error) {
	top, lower := p.str("memory"), optional(p, "lower", []lowerJSON(nil))
	if p.err != nil {
		return nil, p.err
	}
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
