package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"iter"
	"time"

	"github.com/ringcache/ringcache/tier"
)

// tierTime bounds one operation of a level, so that a server that is away does not
// stop the agent.
const tierTime = time.Minute

// level is a level of package tier, or a store over levels, with the leases that lines opened.
type level struct {
	levelCalls
	level  tier.Level       // nil of a store
	store  *tier.Store      // nil of a level
	memory tier.MemoryLevel // nil if there is none
	leases map[string]tier.Lease
	lower  []string // of a store: the names of its levels
	users  int      // stores over it
}

// levelCalls are what levels and stores have in common.
type levelCalls interface {
	Get(ctx context.Context, gets []tier.Get)
	Put(ctx context.Context, puts []tier.Put)
	Delete(ctx context.Context, keys []tier.Key) []error
	List(ctx context.Context, space string) iter.Seq2[tier.Object, error]
	Close() error
}

// close gives the leases up, which would survive the agent otherwise, and closes the level.
func (l *level) close() error {
	for _, lease := range l.leases {
		lease.Release()
	}
	return l.Close()
}

// stat describes objects. Of a store it also reports which levels have them.
func (l *level) stat(ctx context.Context, keys []tier.Key) []reply {
	var out []reply
	if l.store == nil {
		for _, f := range l.level.Stat(ctx, keys) {
			out = append(out, describeObject(f.Object, f.Err))
		}
		return out
	}
	for _, f := range l.store.Stat(ctx, keys) {
		r := describeObject(f.Object, f.Err)
		r["levels"] = append([]string{}, f.Levels...)
		out = append(out, r)
	}
	return out
}

func (l *level) lease(ctx context.Context, o tier.LeaseOptions) (tier.Lease, error) {
	if l.store != nil {
		return l.store.Lease(ctx, o)
	}
	return l.memory.Lease(ctx, o)
}

// The JSON forms of keys and objects, in both directions.
type (
	keyJSON struct {
		Space string `json:"space"`
		Name  string `json:"name"`
	}
	objectJSON struct {
		Space   string   `json:"space"`
		Name    string   `json:"name"`
		Size    int64    `json:"size"`
		Parent  string   `json:"parent"`
		Tenant  string   `json:"tenant"`
		Seconds float64  `json:"seconds"`
		Note    hexBytes `json:"note"`
	}
)

func (k keyJSON) key() tier.Key { return tier.Key(k) }

func (o objectJSON) object() tier.Object {
	return tier.Object{
		Key: tier.Key{Space: o.Space, Name: o.Name}, Size: o.Size, Parent: o.Parent, Tenant: o.Tenant,
		Cost: time.Duration(o.Seconds * float64(time.Second)), Note: o.Note,
	}
}

func (a *Agent) tierOps() map[string]operation {
	return map[string]operation{
		"tier.open":    {"tier level size capacity memory lower", a.tierOpen},
		"tier.put":     {"tier object hex xof", a.onTier(tierPut)},
		"tier.get":     {"tier key", a.onTier(tierGet)},
		"tier.stat":    {"tier keys", a.onTier(tierStat)},
		"tier.delete":  {"tier keys", a.onTier(tierDelete)},
		"tier.list":    {"tier space", a.onTier(tierList)},
		"tier.usage":   {"tier", a.onTier(tierUsage)},
		"tier.close":   {"tier", on("tier", a.levels, a.tierClose)},
		"tier.drain":   {"tier", a.onTier(tierDrain)},
		"tier.lease":   {"tier lease owner seconds", a.onMemory(tierLease)},
		"tier.leases":  {"tier", a.onMemory(tierLeases)},
		"tier.pin":     {"tier lease keys", a.onLease(tierPin)},
		"tier.unpin":   {"tier lease keys", a.onLease(tierUnpin)},
		"tier.reserve": {"tier lease objects xof", a.onLease(tierReserve)},
		"tier.commit":  {"tier lease keys", a.onLease(tierSettle(tier.Lease.Commit))},
		"tier.abort":   {"tier lease keys", a.onLease(tierSettle(tier.Lease.Abort))},
		"tier.release": {"tier lease", a.onMemory(tierRelease)},
	}
}

func (a *Agent) onTier(f func(context.Context, *params, *level) (reply, error)) func(*params) (reply, error) {
	return on("tier", a.levels, func(p *params, l *level) (reply, error) {
		ctx, cancel := context.WithTimeout(context.Background(), tierTime)
		defer cancel()
		return f(ctx, p, l)
	})
}

func (a *Agent) onMemory(f func(context.Context, *params, *level) (reply, error)) func(*params) (reply, error) {
	return a.onTier(func(ctx context.Context, p *params, l *level) (reply, error) {
		if l.memory == nil {
			return nil, unsupportedf("leases are for levels in memory")
		}
		return f(ctx, p, l)
	})
}

func (a *Agent) onLease(f func(*params, tier.Lease) (reply, error)) func(*params) (reply, error) {
	return a.onMemory(func(_ context.Context, p *params, l *level) (reply, error) {
		return f(p, named(p, "lease", l.leases))
	})
}

func (p *params) tierKeys() []tier.Key {
	var out []tier.Key
	for _, k := range required[[]keyJSON](p, "keys") {
		out = append(out, k.key())
	}
	return out
}

func tierPut(ctx context.Context, p *params, l *level) (reply, error) {
	o := required[objectJSON](p, "object")
	var data []byte
	switch {
	case p.has("hex") == p.has("xof"):
		p.fail("one of \"hex\" and \"xof\" is needed")
	case p.has("hex"):
		if data = p.hex("hex"); o.Size == 0 {
			o.Size = int64(len(data))
		}
	case o.Size < 0 || o.Size > int64(p.budget):
		p.fail("object of %d bytes, at most %d in a request", o.Size, p.budget)
	default:
		data = xof(p.str("xof"), int(o.Size), false)
	}
	puts := []tier.Put{{Object: o.object(), Bytes: data}}
	l.Put(ctx, puts)
	return nil, puts[0].Err
}

func tierGet(ctx context.Context, p *params, l *level) (reply, error) {
	k := required[keyJSON](p, "key")
	gets := []tier.Get{{Key: k.key()}}
	l.Get(ctx, gets)
	if err := gets[0].Err; err != nil {
		return nil, err
	}
	out := describeObject(gets[0].Object, nil)
	describeBytes(out, gets[0].Bytes)
	return out, nil
}

// describeBytes adds the bytes of an object to a reply, as docs/agent.md has it for tensors.
func describeBytes(out reply, b []byte) {
	sum := sha256.Sum256(b)
	out["sha256"] = hex.EncodeToString(sum[:])
	if len(b) <= hexLimit {
		out["hex"] = hex.EncodeToString(b)
	}
}

func describeObject(o tier.Object, err error) reply {
	if err != nil {
		return reply{"error": describeError(err)}
	}
	out := reply{"space": o.Space, "name": o.Name, "size": o.Size}
	if o.Parent != "" {
		out["parent"] = o.Parent
	}
	if o.Tenant != "" {
		out["tenant"] = o.Tenant
	}
	if o.Cost != 0 {
		out["seconds"] = o.Cost.Seconds()
	}
	if len(o.Note) != 0 {
		out["note"] = hex.EncodeToString(o.Note)
	}
	return out
}

// describeErrors is a reply with null for what was done.
func describeErrors(errs []error) reply {
	out := make([]any, len(errs))
	for i, err := range errs {
		if err != nil {
			out[i] = describeError(err)
		}
	}
	return reply{"errors": out}
}

func tierStat(ctx context.Context, p *params, l *level) (reply, error) {
	return reply{"objects": l.stat(ctx, p.tierKeys())}, nil
}

func tierDelete(ctx context.Context, p *params, l *level) (reply, error) {
	return describeErrors(l.Delete(ctx, p.tierKeys())), nil
}

func tierList(ctx context.Context, p *params, l *level) (reply, error) {
	out := []reply{}
	for o, err := range l.List(ctx, optional(p, "space", "")) {
		if err != nil {
			return nil, err
		}
		out = append(out, describeObject(o, nil))
	}
	return reply{"objects": out}, nil
}

func tierUsage(_ context.Context, _ *params, l *level) (reply, error) {
	if l.level == nil {
		return nil, unsupportedf("a store has no usage of its own; its levels have")
	}
	u := l.level.Usage()
	out := reply{
		"objects": u.Objects, "bytes": u.Bytes, "capacity": u.Capacity, "held": u.Held, "evicted": u.Evicted,
		"corrupt": u.Corrupt,
	}
	if u.Tenants != nil {
		out["tenants"] = u.Tenants
	}
	return out, nil
}

func (a *Agent) tierClose(p *params, l *level) (reply, error) {
	if l.users > 0 {
		return nil, invalidf("a store uses the tier: close that first")
	}
	delete(a.levels, p.str("tier"))
	for _, lower := range l.lower {
		a.levels[lower].users--
	}
	return nil, l.close()
}

// closeTiers closes stores, and then the levels below them.
func (a *Agent) closeTiers() error {
	var errs []error
	for _, stores := range []bool{true, false} {
		for _, l := range a.levels {
			if stores == (l.store != nil) {
				errs = append(errs, l.close())
			}
		}
	}
	clear(a.levels)
	return errors.Join(errs...)
}

func tierDrain(ctx context.Context, _ *params, l *level) (reply, error) {
	if l.store == nil {
		return nil, unsupportedf("only a store writes to lower levels in the background")
	}
	_, err := l.store.Drain(ctx)
	return nil, err
}

func tierLease(ctx context.Context, p *params, l *level) (reply, error) {
	o := tier.LeaseOptions{ID: p.str("lease"), Owner: optional(p, "owner", "")}
	if p.has("seconds") {
		o.Until = time.Now().Add(time.Duration(required[float64](p, "seconds") * float64(time.Second)))
	}
	lease, err := l.lease(ctx, o)
	if err != nil {
		return nil, err
	}
	l.leases[o.ID] = lease
	return describeLease(lease.State()), nil
}

func describeLease(s tier.LeaseState) reply {
	names := func(keys []tier.Key) []keyJSON {
		out := []keyJSON{}
		for _, k := range keys {
			out = append(out, keyJSON(k))
		}
		return out
	}
	out := reply{
		"lease": s.ID, "owner": s.Owner, "pinned": names(s.Pinned), "reserved": names(s.Reserved), "bytes": s.Bytes,
		"from_restart": s.FromRestart,
	}
	if !s.Until.IsZero() {
		out["seconds"] = time.Until(s.Until).Seconds()
	}
	return out
}

func tierLeases(_ context.Context, _ *params, l *level) (reply, error) {
	out := []reply{}
	list := l.memory.Leases
	if l.store != nil {
		list = l.store.Leases // without the store's own
	}
	for _, s := range list() {
		out = append(out, describeLease(s))
	}
	s := l.memory.Segment()
	return reply{"leases": out, "segment": s.Name, "segment_bytes": s.Size}, nil
}

func describePlaced(placed []tier.Placed, withBytes bool) reply {
	out := []reply{}
	for _, pl := range placed {
		one := describeObject(pl.Object, pl.Err)
		if pl.Err == nil {
			one["offset"] = pl.Offset
			if withBytes {
				describeBytes(one, pl.Bytes)
			}
		}
		out = append(out, one)
	}
	return reply{"objects": out}
}

func tierPin(p *params, lease tier.Lease) (reply, error) {
	return describePlaced(lease.Pin(p.tierKeys()), true), nil
}

func tierUnpin(p *params, lease tier.Lease) (reply, error) {
	lease.Unpin(p.tierKeys())
	return nil, nil
}

// tierReserve reserves objects, and fills them if the line has what with: another
// process that maps the segment fills them by their offset.
func tierReserve(p *params, lease tier.Lease) (reply, error) {
	var objects []tier.Object
	for _, o := range required[[]objectJSON](p, "objects") {
		objects = append(objects, o.object())
	}
	seed := optional(p, "xof", "")
	placed := lease.Reserve(objects)
	if p.has("xof") {
		for _, pl := range placed {
			if pl.Err == nil {
				copy(pl.Bytes, xof(seed, len(pl.Bytes), false))
			}
		}
	}
	return describePlaced(placed, false), nil
}

func tierSettle(settle func(tier.Lease, []tier.Key) []error) func(*params, tier.Lease) (reply, error) {
	return func(p *params, lease tier.Lease) (reply, error) {
		return describeErrors(settle(lease, p.tierKeys())), nil
	}
}

func tierRelease(_ context.Context, p *params, l *level) (reply, error) {
	lease := named(p, "lease", l.leases)
	lease.Release()
	delete(l.leases, lease.ID())
	return nil, nil
}
