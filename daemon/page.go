package daemon

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"

	"github.com/ringcache/ringcache/daemon/internal/page"
	"github.com/ringcache/ringcache/daemon/internal/registry"
	"github.com/ringcache/ringcache/daemon/wire"
	"github.com/ringcache/ringcache/tier"
)

// newPage makes the page for people, which looks at the runner.
func (r *runner) newPage(events *page.Events) *page.Page {
	return page.New(page.Options{
		Version: r.o.Version, Segment: r.config.Name, Dir: r.config.ShmDir, Size: r.config.Size,
		Streams: max(2, r.config.files().http/4), Bounds: LatencyBounds[:], Events: events, Logger: r.log,
		Now: r.look,
		Holdings: func(n int) []registry.Holding {
			if !r.isOpen() {
				return nil
			}
			return r.server.registry.Holdings(n)
		},
		Find: r.find,
	})
}

// isOpen reports whether there are a store and a server.
func (r *runner) isOpen() bool {
	p := r.phase.Load()
	return p == phaseServing || p == phaseDraining
}

// look returns what the daemon has and does. It reads counters, as /metrics does.
func (r *runner) look() page.Now {
	remark, err := r.ready()
	n := page.Now{At: time.Now(), Ready: err == nil, State: "ready"}
	switch {
	case err != nil:
		n.State = err.Error()
	case remark != "":
		n.State += "; " + remark
	}
	if !r.isOpen() || errors.Is(err, errHangs) {
		return n
	}
	n.Up = n.At.Sub(r.server.started)
	st, c, all := r.levels.store.State(), r.server.Counters(), r.server.registry.Counts()
	n.Use, n.Clearing = all.Use, all.Clearing
	n.Connections, n.Sessions, n.Processes, n.Leases, n.Waiting = c.Connections, c.Sessions, c.Processes, c.Leases, c.Waiting
	n.Held, n.Fetches, n.Queued, n.Backlog = c.Held, st.Fetches, st.Queued, st.Backlog
	n.InFlight, n.BacklogBytes = st.InFlight, st.BacklogBytes
	for _, l := range st.Levels {
		l.Usage.Tenants = nil // looks are kept
		n.Levels = append(n.Levels, page.Level{LevelState: l})
	}
	for _, x := range r.levels.store.Counters() {
		i := slices.IndexFunc(n.Levels, func(l page.Level) bool { return l.Name == x.Level })
		switch {
		case i < 0:
		case x.Kind == "hit":
			n.Levels[i].Hits += x.Count
		case x.Kind == "miss" && (x.Cause == "not found" || x.Cause == "corrupt"): // others say nothing about what it has
			n.Levels[i].Misses += x.Count
		}
	}
	for _, x := range c.Requests {
		n.Ops = append(n.Ops, page.Op{Name: string(x.Op), Within: x.Within[:], Total: x.Total})
	}
	r.lookAtOthers(&n, c)
	return n
}

// lookAtOthers adds what was refused, and what clients of other protocols did.
func (r *runner) lookAtOthers(n *page.Now, c Counters) {
	for _, x := range c.Refused {
		n.Refused = append(n.Refused, page.Refused{What: "requests", Reason: string(x.Kind), Count: x.Count})
	}
	for _, status := range []wire.Status{wire.StatusFull, wire.StatusTooLarge} {
		x := page.Refused{What: "objects", Reason: string(status)}
		for _, item := range c.Items {
			if item.Status == status {
				x.Count += item.Count
			}
		}
		n.Refused = append(n.Refused, x)
	}
	if r.lmcache != nil {
		for _, x := range r.lmcache.server.Calls() {
			n.Ops = append(n.Ops, page.Op{Name: "lmcache " + x.Name, Within: x.Within[:], Total: x.Total})
		}
		n.Refused = append(n.Refused, page.Refused{
			What: "chunks of LMCache", Reason: "full", Count: uint64(r.lmcache.server.Counts().NoRoom),
		})
	}
	for _, s := range r.values {
		v := s.protocol.Counts()
		n.Values = append(n.Values, page.Values{
			Protocol: s.key, Connections: int(v.Connections), Hits: v.Hits, Misses: v.Misses, Stored: v.Stored,
			Dropped: v.Dropped,
		})
	}
}

// find asks every level about an object, and which leases have it.
func (r *runner) find(ctx context.Context, k tier.Key) (tier.Located, []wire.Lease) {
	if !r.isOpen() {
		return tier.Located{Found: tier.Found{Err: fs.ErrClosed}}, nil
	}
	leases := slices.DeleteFunc(r.server.leases([]tier.Key{k}), func(l wire.Lease) bool { return l.Names == 0 })
	return r.levels.store.Stat(ctx, []tier.Key{k})[0], leases
}
