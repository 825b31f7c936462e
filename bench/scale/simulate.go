package main

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/ringcache/ringcache/internal/sizing"
)

// result is what was seen in the second half of a run.
type result struct {
	plan   sizing.Plan // where look-ups were answered
	sent   float64     // bytes a second that hosts ask the store for
	stored float64     // bytes a second that they send to it
	// The work for each second: of the store's link, outwards and inwards, of its requests, and in the mean of
	// the links of hosts, towards them. More than 1 can't be done.
	out, in, begins, host float64
	twice                 float64 // the share of what was computed that another host was computing, or sending to the store
	p50, p99              float64 // seconds until a request has all that it fetches from the store
	mean                  float64 // the same
	computing             float64 // seconds of computing for each second
}

// simulate runs a trace, of which found is what the hosts have themselves, with requests that come at random.
func simulate(t *sizing.Trace, found []sizing.Found, l load, hosts int, store int64, n network, seed uint64) result {
	var (
		rng     = rand.New(rand.NewPCG(seed, uint64(hosts)))
		shared  = sizing.NewStore(store)
		wires   = newLinks(n, hosts)
		coming  events
		sending = map[int32]int{} // objects that hosts compute or send to the store: how many do
		r       result
		waits   []float64
		now     float64
		begun   float64
		before  links
		lookups float64
		twice   float64
	)
	warm := t.Requests() / 2
	for i := range t.Requests() {
		if i == warm {
			begun, before = now, *wires
			before.hostsIn = slices.Clone(wires.hostsIn)
		}
		now += rng.ExpFloat64() / (l.rate * float64(hosts))
		for {
			e, ok := coming.next(now)
			if !ok {
				break
			}
			bytes := t.Size(e.key)
			if !e.got {
				coming.add(event{at: wires.deliver(e.at, e.host, float64(bytes)), host: e.host, key: e.key, got: true})
				continue
			}
			shared.Put(e.key, bytes)
			if sending[e.key]--; sending[e.key] == 0 {
				delete(sending, e.key)
			}
		}
		from, to := t.Request(i)
		host := int(t.Hosts[i])
		ready, done := 0.0, now
		cut := false
		for k := from; k < to; k++ {
			id, at := t.Keys[k], found[k]
			bytes := float64(t.Size(id))
			switch {
			case cut || at == sizing.Nowhere && store == 0:
				at = sizing.Nowhere
			case at == sizing.Nowhere && shared.Use(id):
				at = sizing.InStore
				ready = max(ready, wires.fetch(now, host, bytes)-now)
			case at == sizing.Nowhere:
				done = max(done, wires.miss(now))
			}
			if at == sizing.Nowhere {
				if i >= warm && sending[id] > 0 {
					twice++
				}
				if done += l.compute; store != 0 {
					sending[id]++
					coming.add(event{at: done, host: host, key: id})
				}
			}
			cut = at == sizing.Nowhere && t.Cuts(k, to)
			if i >= warm {
				lookups++
				r.plan.Found[at].Share++
				r.plan.Found[at].Bytes += bytes
			}
		}
		if i >= warm && ready > 0 {
			waits = append(waits, ready)
			r.mean += ready
		}
	}
	seconds := now - begun
	computed := r.plan.Found[sizing.Nowhere].Share
	r.computing = computed * l.compute / seconds
	r.twice = twice / max(computed, 1)
	for i := range r.plan.Found {
		r.plan.Found[i].Share /= lookups
		r.plan.Found[i].Bytes /= lookups
	}
	r.plan.PerRequest = lookups / float64(t.Requests()-warm)
	r.sent, r.stored = (wires.fetched-before.fetched)/seconds, (wires.delivered-before.delivered)/seconds
	r.out = (wires.storeOut.busy - before.storeOut.busy) / seconds
	r.in = (wires.storeIn.busy - before.storeIn.busy) / seconds
	r.begins = (wires.begins.busy - before.begins.busy) / seconds
	for h := range hosts {
		r.host += (wires.hostsIn[h].busy - before.hostsIn[h].busy) / seconds / float64(hosts)
	}
	r.mean /= float64(max(len(waits), 1))
	slices.Sort(waits)
	r.p50, r.p99 = quantile(waits, 0.5), quantile(waits, 0.99)
	return r
}

// quantile is of sorted values; 0 of none.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(math.Ceil(q*float64(len(sorted))))-1]
}
