package shmstore

import (
	"errors"

	"github.com/ringcache/ringcache/internal/evict"
	"github.com/ringcache/ringcache/internal/line"
)

// setQuotas replaces the quotas. Those who wait for theirs may be within it now.
func (s *space) setQuotas(q evict.Quotas) {
	s.quotas = q
	for _, t := range s.tenants {
		s.wakeFirst(&t.line)
	}
}

// admit evicts objects of the tenant itself until it may have size bytes more.
func (s *space) admit(size int, tenant string, as line.Role, few *int) error {
	quota := s.quotas.For(tenant)
	if quota == 0 {
		return nil
	}
	need := s.extent(size)
	if need > quota {
		return &TooLargeError{Size: int(need), Limit: int(quota), Tenant: tenant}
	}
	var held idSet // by readers
	for {
		t := s.tenants[tenant]
		if t == nil {
			return nil
		}
		if as == line.Passing && !t.line.MayPass(need, quota) {
			return s.quotaError(t, tenant, need, quota, held)
		}
		if t.used+need <= quota {
			return nil
		}
		if t.used-t.idleBytes+need <= quota {
			if victim := s.cheapestOf(t, held); victim != nil {
				held.add(s.evict(append(s.victims[:0], victim.chunk.id)))
				continue
			}
		}
		if !s.lifetime.releaseNext(few) {
			return s.quotaError(t, tenant, need, quota, held)
		}
	}
}

func (s *space) quotaError(t *tenant, name string, need, quota int64, held idSet) error {
	used := t.used - t.idleBytes
	for id := range held {
		if o := s.object(id); o != nil && o.class.reachable() {
			used += o.extent()
		}
	}
	return &FullError{Tenant: name, Need: int(need), Used: uint64(used), Size: int(quota)}
}

// hasPassed counts n bytes that someone got before those who wait.
func (s *space) hasPassed(n int64, tenant string, as line.Role) {
	s.waiters.Main.Passed(n)
	if t := s.tenants[tenant]; t != nil && as == line.Passing {
		t.line.Passed(n)
	}
}

// lineOf returns where to wait after an shmring.ErrFull.
func (s *space) lineOf(err error, tenant string) *line.Line {
	if full := (*FullError)(nil); errors.As(err, &full) && full.Tenant != "" {
		return &s.tenantOf(tenant).line
	}
	return &s.waiters.Main
}
