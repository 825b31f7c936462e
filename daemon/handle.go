package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/ringcache/ringcache/daemon/internal/registry"
	"github.com/ringcache/ringcache/daemon/wire"
	"github.com/ringcache/ringcache/encoder"
	"github.com/ringcache/ringcache/tier"
)

// session is what a connection uses after Hello.
type session struct {
	id   string
	user *registry.Session
	// identifiers is set for clients that store encoders' outputs: their names have to be of content.
	identifiers bool
	looks       *looks
	work        *work
	stored      int // objects that the request published, until they are counted
}

// handle answers a request that is valid as such.
func (c *connection) handle(q *wire.Request) *wire.Reply {
	if q.Op == wire.Hello {
		return c.hello(q)
	}
	if c.session == nil {
		return failed(wire.KindHello, "say hello first")
	}
	var p *wire.Reply
	var err error
	switch q.Op {
	case wire.Pin:
		p, err = c.session.pin(q)
	case wire.Get:
		p, err = c.session.get(q)
	case wire.Reserve:
		p, err = c.session.reserve(q)
	case wire.Commit:
		p, err = c.session.endReservations(q, func(keys []tier.Key) ([]error, error) {
			errs, published, err := c.session.user.Commit(q.Lease, keys, q.Keep, seconds(q))
			c.session.stored += published
			return errs, err
		})
	case wire.Abort:
		p, err = c.session.endReservations(q,
			func(keys []tier.Key) ([]error, error) { return c.session.user.Abort(q.Lease, keys) })
	case wire.Release:
		p, err = c.session.release(q)
	case wire.Stat:
		p = c.stat(q)
	case wire.Clear:
		p, err = c.clear(q)
	default:
		return failed(wire.KindUnsupported, fmt.Sprintf("operation %.64q is unknown", q.Op))
	}
	if err != nil {
		return &wire.Reply{Error: refusal(err)}
	}
	return p
}

// failed refuses a request as a whole.
func failed(kind wire.Kind, text string) *wire.Reply {
	return &wire.Reply{Error: &wire.Error{Kind: kind, Text: text}}
}

// seconds is how long a request wants its lease to last, 0 for the ordinary time.
func seconds(q *wire.Request) time.Duration { return time.Duration(q.Seconds) * time.Second }

// hello opens a session, or takes one up.
func (c *connection) hello(q *wire.Request) *wire.Reply {
	s := c.server
	if c.session != nil && c.session.id != q.Session {
		return failed(wire.KindInvalid, "this connection has another session already; make a connection for each")
	}
	space := ""
	if q.Fingerprint != nil {
		var err error
		if space, err = q.Fingerprint.Space(); err != nil {
			return failed(wire.KindInvalid, err.Error())
		}
	}
	if c.session != nil { // it would be taken over from this connection
		c.session.user.Leave()
		c.session.looks.end()
		c.session = nil
	}
	user, err := s.registry.Join(c.client, protocol, q.Session, q.Client, c.close)
	if err != nil {
		return &wire.Reply{Error: refusal(err)}
	}
	c.session = &session{
		id: q.Session, user: user, identifiers: q.Fingerprint != nil, work: &c.work,
		looks: &looks{rooms: c.work.rooms, part: c.work.part},
	}
	user.Count(space, registry.Use{}, space == "")
	s.mu.Lock()
	l := s.limits
	s.mu.Unlock()
	seg := s.segment
	return &wire.Reply{
		Version: wire.Version, Server: "ringcache " + s.o.Version, Segment: &seg, Space: space,
		Features: shared(s.features, q.Features),
		Limits: &wire.Limits{
			Names: wire.MaxNames, Seconds: uint32(l.MaxLease / time.Second), Held: l.MaxHeld, Leases: l.MaxLeases,
		},
	}
}

// shared returns those of our features that the client has, too.
func shared(ours, theirs []string) []string {
	return slices.DeleteFunc(slices.Clone(ours), func(f string) bool { return !slices.Contains(theirs, f) })
}

// keysOf returns the keys of names, and what is wrong with those that may not be stored. places are the places
// of the keys among the names.
func (s *session) keysOf(space string, names []string, items []wire.Item) (keys []tier.Key, places []int) {
	keys, places = make([]tier.Key, 0, len(names)), make([]int, 0, len(names))
	for i, name := range names {
		if s.refuses(name) {
			items[i].Status = wire.StatusInvalid
			continue
		}
		keys = append(keys, tier.Key{Space: space, Name: name})
		places = append(places, i)
	}
	return keys, places
}

// refuses reports whether a name is one that an engine made by counting: it would be another image's in another
// engine.
func (s *session) refuses(name string) bool {
	return s.identifiers && errors.Is(encoder.CheckIdentifier(name), encoder.ErrCounter)
}

// pin answers Pin, for each name alone.
func (s *session) pin(q *wire.Request) (*wire.Reply, error) {
	items := make([]wire.Item, len(q.Names))
	keys, places := s.keysOf(q.Space, q.Names, items)
	end := len(items)
	if q.Prefix { // what is behind a name that can't be there is of no use
		for i := range items {
			if items[i].Status != "" {
				keys, end = keys[:i], i+1
				break
			}
		}
	}
	if !q.Prefix {
		return &wire.Reply{Items: items}, s.work.pieces(len(keys), func(from, to int) error {
			placed, err := s.user.Pin(q.Lease, keys[from:to], seconds(q), false)
			for i, p := range placed {
				items[places[from+i]] = itemOf(p, wire.StatusHit)
			}
			return err
		})
	}
	// a chain is one piece, since it ends with the first miss
	placed, err := s.user.Pin(q.Lease, keys, seconds(q), true)
	if err != nil {
		return nil, err
	}
	s.work.cost += len(placed) / namesOfTurn
	for i, p := range placed {
		items[places[i]] = itemOf(p, wire.StatusHit)
	}
	if len(placed) < len(keys) || len(placed) > 0 && !reaches(placed[len(placed)-1].Err) {
		end = len(placed)
	}
	return &wire.Reply{Items: items[:end]}, nil
}

// reaches reports whether a prefix goes on behind an object.
func reaches(err error) bool { return err == nil || errors.Is(err, tier.ErrPending) }

// get answers Get: where the objects of a lease are, of those that were named or of all.
func (s *session) get(q *wire.Request) (*wire.Reply, error) {
	keys := make([]tier.Key, len(q.Names))
	for i, name := range q.Names {
		keys[i] = tier.Key{Space: q.Space, Name: name}
	}
	var err error
	if len(keys) == 0 {
		if n := s.user.Objects(q.Lease); n > maxListed {
			return failed(wire.KindInvalid,
				fmt.Sprintf("the lease has %d objects, and %d are the most to list: name those that you want", n,
					maxListed)), nil
		}
		if keys, err = s.user.Keys(q.Lease, q.Space); err != nil || len(keys) == 0 {
			return &wire.Reply{}, err
		}
	}
	items := make([]wire.Item, len(keys))
	return &wire.Reply{Items: items}, s.work.pieces(len(keys), func(from, to int) error {
		placed, err := s.user.Get(q.Lease, keys[from:to])
		for i, p := range placed {
			reserved := errors.Is(p.Err, tier.ErrPending)
			if reserved {
				p.Err = nil
			}
			it := itemOf(p, wire.StatusHit)
			if reserved {
				it.Status = wire.StatusReserved
			}
			if len(q.Names) == 0 {
				it.Name = keys[from+i].Name
			}
			items[from+i] = it
		}
		return err
	})
}

// reserve answers Reserve, for each object alone.
func (s *session) reserve(q *wire.Request) (*wire.Reply, error) {
	items := make([]wire.Item, len(q.Objects))
	objects, places := make([]tier.Object, 0, len(q.Objects)), make([]int, 0, len(q.Objects))
	for i, o := range q.Objects {
		if s.refuses(o.Name) {
			items[i].Status = wire.StatusInvalid
			continue
		}
		objects = append(objects, tier.Object{
			Key: tier.Key{Space: q.Space, Name: o.Name}, Size: o.Size, Note: o.Note, Parent: o.Parent, Tenant: o.Tenant,
			Cost: o.Cost,
		})
		places = append(places, i)
	}
	return &wire.Reply{Items: items}, s.work.pieces(len(objects), func(from, to int) error {
		placed, err := s.user.Reserve(q.Lease, objects[from:to], seconds(q))
		for i, p := range placed {
			items[places[from+i]] = itemOf(p, wire.StatusReserved)
		}
		return err
	})
}

// endReservations commits or aborts.
func (s *session) endReservations(q *wire.Request, do func([]tier.Key) ([]error, error)) (*wire.Reply, error) {
	items := make([]wire.Item, len(q.Names))
	keys, places := s.keysOf(q.Space, q.Names, items)
	return &wire.Reply{Items: items}, s.work.pieces(len(keys), func(from, to int) error {
		errs, err := do(keys[from:to])
		for i, err := range errs {
			items[places[from+i]] = wire.Item{Status: statusOf(err, wire.StatusOK)}
		}
		return err
	})
}

// release answers Release, of whole leases or of what one lease pins.
func (s *session) release(q *wire.Request) (*wire.Reply, error) {
	if len(q.Leases) > 0 {
		return &wire.Reply{}, s.releaseLeases(q.Leases)
	}
	keys := make([]tier.Key, len(q.Names))
	for i, name := range q.Names {
		keys[i] = tier.Key{Space: q.Space, Name: name}
	}
	return &wire.Reply{}, s.work.pieces(len(keys),
		func(from, to int) error { return s.user.Unpin(q.Lease, keys[from:to]) })
}

// releaseLeases ends leases, with a turn for each piece of them, and of the objects of a large one.
func (s *session) releaseLeases(names []string) error {
	for {
		some := names[:min(len(names), piece)]
		rest, err := s.user.Release(some)
		if err != nil {
			return err
		}
		if names = names[len(some)-len(rest):]; len(names) == 0 {
			s.work.cost += len(some) / namesOfTurn
			return nil
		}
		s.work.pause(piece)
	}
}

// itemOf answers for an object that is there with a status, and for another one by its error.
func itemOf(p tier.Placed, ok wire.Status) wire.Item {
	if p.Err != nil {
		return wire.Item{Status: statusOf(p.Err, ok)}
	}
	return wire.Item{Status: ok, Offset: p.Offset, Size: p.Object.Size, Note: p.Object.Note}
}

// statusOf returns what an error means for a client.
func statusOf(err error, ok wire.Status) wire.Status {
	switch {
	case err == nil:
		return ok
	case errors.Is(err, tier.ErrPending):
		return wire.StatusPending
	case errors.Is(err, tier.ErrExists):
		return wire.StatusExists
	case errors.Is(err, tier.ErrEnded):
		return wire.StatusEnded
	case errors.Is(err, tier.ErrUnavailable): // also a miss, since a level could not be asked
		return wire.StatusUnavailable
	case errors.Is(err, tier.ErrNotFound):
		return wire.StatusMiss
	case errors.Is(err, tier.ErrTooLarge):
		return wire.StatusTooLarge
	case errors.Is(err, tier.ErrFull):
		return wire.StatusFull
	case errors.Is(err, fs.ErrInvalid):
		return wire.StatusInvalid
	}
	return wire.StatusUnavailable
}
