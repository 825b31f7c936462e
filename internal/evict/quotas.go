package evict

// Quotas are the most bytes that tenants may have in a level. One that is at its quota pays with its own objects.
type Quotas struct {
	Of   map[string]int64 // of single tenants; 0 is no bound
	Each int64            // of every other tenant; 0 is no bound
}

// For returns the most bytes of a tenant; 0 is no bound. Nobody, who is "", has none.
func (q Quotas) For(tenant string) int64 {
	if n, ok := q.Of[tenant]; ok && tenant != "" {
		return n
	}
	if tenant == "" {
		return 0
	}
	return q.Each
}
