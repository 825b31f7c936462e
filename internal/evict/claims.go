package evict

import "math"

// Claim is what somebody says of an object that he stores. Nobody can check the cost, so it is a hint:
//   - a cost is compared with what its tenant usually claims, by what an object of its size usually costs. So who
//     claims much of everything claims nothing;
//   - it makes an object worth up to maxClaim times what it is worth without a claim, and never less;
//   - it counts until the object was not used for claimRounds rounds of the cache at most. In a round as many bytes are stored
//     as the cache has room for. After that the object has the value that it would have if nothing had been claimed of it.
//
// See docs/decisions.md, "Costs are hints: compared, capped, and aged".
type Claim struct {
	Tenant string
	Cost   float64 // of making the object again, in nanoseconds; 0 is unknown
	Bytes  int64   // of the object
	Room   int64   // bytes of the cache
}

// In the traces of bench/eviction, claims that are cut to this save as much as claims that count in full.
// Where costs lie around the usual one by one and a half octaves (the standard deviation), they save 50.7 %
// of the cost, and in full 52.2 %. To let claims lower a value too saves 51.2 % there, and lets a hostile one
// that shares the tenant keep others away for eight times as long.
const (
	maxClaim    = 4
	claimRounds = 8

	maxCost   = 3600e9 // nothing takes longer than an hour
	norms     = 256    // tenants share them by their hash
	normShare = 1.0 / 64
)

// norm is the mean logarithm (of base 2) of what a tenant claims, as a multiple of Estimate. It begins with 0.
type norm struct {
	mean float64
	n    int
}

// Estimate is the cost in nanoseconds of an object of which nothing but the bytes is known: 3 ms, and 8 ms
// for each MiB.
func Estimate(bytes int64) float64 { return 3e6 + 8e6*float64(max(bytes, 0))/(1<<20) }

// AddClaimed is Add of an object whose cost somebody claims.
func (p *Policy) AddClaimed(e *Entry, key string, c Claim) {
	if p.stored += max(c.Bytes, 0); p.stored >= c.Room {
		p.stored = 0
		p.round++
	}
	plain := Estimate(c.Bytes)
	p.Add(e, key, plain)
	if c.Cost > 0 {
		cost := min(max(c.Cost, 1), maxCost)
		e.claimed = float32(plain * p.norms[hash(c.Tenant)%norms].compare(cost/plain))
	}
}

// compare returns how much of a claim counts, and makes it part of the norm.
func (n *norm) compare(claim float64) float64 {
	diff := math.Log2(claim) - n.mean
	n.n++
	n.mean += max(normShare, 1/float64(1+n.n)) * diff
	return min(max(math.Exp2(diff), 1), maxClaim)
}
