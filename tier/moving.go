package tier

// moving is what is moved at a time, and the limits of it.
type moving struct {
	most, bytes, peak int64
	quotas            map[string]int64
	of                map[string]int64 // bytes by tenant, of those with a quota
}

func newMoving(most int64, quotas map[string]int64) moving {
	return moving{most: max(most, 1), quotas: quotas, of: map[string]int64{}}
}

// hasRoom reports whether so many bytes may be moved, too. What is larger than the limit is
// moved alone.
func (m *moving) hasRoom(size int64) bool {
	return size == 0 || m.bytes == 0 || size <= m.most-m.bytes
}

// inQuota reports whether tenants have a share left. The same rule: what is larger than a quota is
// moved while the tenant has nothing else.
func (m *moving) inQuota(tenants map[string]int64) bool {
	for tenant, size := range tenants {
		quota, ok := m.quotas[tenant]
		if ok && m.of[tenant] > 0 && size > quota-m.of[tenant] {
			return false
		}
	}
	return true
}

// add counts bytes that begin (sign 1) or end (sign -1) to be moved.
func (m *moving) add(size int64, tenants map[string]int64, sign int64) {
	m.bytes += sign * size
	m.peak = max(m.peak, m.bytes)
	for tenant, size := range tenants {
		if _, ok := m.quotas[tenant]; !ok {
			continue
		}
		if m.of[tenant] += sign * size; m.of[tenant] == 0 {
			delete(m.of, tenant)
		}
	}
}
