package tier

// budget bounds the bytes that workers move in one direction at a time. The lock of the part that owns the
// budget guards it.
type budget struct {
	limit, used, peak int64
	quotas            map[string]int64
	usedBy            map[string]int64 // by tenant, of those with a quota
}

func newBudget(limit int64, quotas map[string]int64) budget {
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
		quota, ok := b.quotas[tenant]
		if ok && b.usedBy[tenant] > 0 && size > quota-b.usedBy[tenant] {
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
		if _, ok := b.quotas[tenant]; !ok {
			continue
		}
		if b.usedBy[tenant] += sign * size; b.usedBy[tenant] == 0 {
			delete(b.usedBy, tenant)
		}
	}
}

// blocked counts the deletions of keys that are under way, during which neither part may work on the keys.
type blocked map[Key]int

func (b blocked) add(keys []Key) {
	for _, k := range keys {
		b[k]++
	}
}

func (b blocked) remove(keys []Key) {
	for _, k := range keys {
		if b[k]--; b[k] == 0 {
			delete(b, k)
		}
	}
}
