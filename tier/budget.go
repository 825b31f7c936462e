package tier

import (
	"sync/atomic"

	"github.com/ringcache/ringcache/internal/evict"
)

// budget bounds the bytes that workers move in one direction at a time. The lock of the part that owns the
// budget guards it.
type budget struct {
	limit  int64                         // bytes
	used   int64                         // bytes that are moved now; more than limit if it is a single object
	peak   int64                         // the most of used so far
	quotas *atomic.Pointer[evict.Quotas] // nil for those who have no tenants to tell apart
	usedBy map[string]int64              // the part of used of each tenant
}

// newBudget returns a budget of at least one byte: with none, nothing but empty objects would move.
func newBudget(limit int64, quotas *atomic.Pointer[evict.Quotas]) budget {
	return budget{limit: max(limit, 1), quotas: quotas, usedBy: map[string]int64{}}
}

// hasRoom reports whether size more bytes may be moved now. What is larger than the limit is moved alone.
func (b *budget) hasRoom(size int64) bool {
	return size == 0 || b.used == 0 || size <= b.limit-b.used
}

// inQuota reports whether tenants may move so many bytes now. What is larger than a quota is moved while the
// tenant moves nothing else.
func (b *budget) inQuota(tenants map[string]int64) bool {
	for tenant, size := range tenants {
		quota := b.quotas.Load().For(tenant)
		if quota > 0 && b.usedBy[tenant] > 0 && size > quota-b.usedBy[tenant] {
			return false
		}
	}
	return true
}

// add charges bytes, or gives them back if sign is -1.
func (b *budget) add(size int64, tenants map[string]int64, sign int64) {
	b.used += sign * size
	b.peak = max(b.peak, b.used)
	for tenant, size := range tenants {
		if b.usedBy[tenant] += sign * size; b.usedBy[tenant] == 0 {
			delete(b.usedBy, tenant)
		}
	}
}

// blocked counts the deletions of keys that are under way, during which neither part may work on the keys.
type blocked map[Key]int

// add counts a deletion of each key.
func (b blocked) add(keys []Key) {
	for _, k := range keys {
		b[k]++
	}
}

// remove ends what add counted.
func (b blocked) remove(keys []Key) {
	for _, k := range keys {
		if b[k]--; b[k] == 0 {
			delete(b, k)
		}
	}
}
