package objstore

import (
	"errors"
	"fmt"

	"github.com/ringcache/ringcache/shmring"
)

// QuotaError says that a tenant may not have more bytes. It is an [ErrFull]: the
// object goes inline, or waits.
type QuotaError struct {
	Tenant string
	Need   int64 // bytes of the chunk, rounded up
	Used   int64 // bytes of the tenant that can't be evicted now
	Quota  int64
}

func (e *QuotaError) Error() string {
	return fmt.Sprintf("objstore: tenant %q has %d bytes in use and wants %d more, its quota is %d; send the object inline, end requests that are done, or raise Options.Quotas",
		e.Tenant, e.Used, e.Need, e.Quota)
}

// Unwrap makes errors.Is(err, ErrFull) true.
func (e *QuotaError) Unwrap() error { return ErrFull }

// UpstreamText is the text of vLLM's error for a full ring.
func (e *QuotaError) UpstreamText() string { return (*shmring.FullError)(nil).UpstreamText() }

func (w *Writer) quota(tenant string) int64 {
	if q, ok := w.opt.Quotas[tenant]; ok {
		return q
	}
	return w.opt.Quota
}

// admit evicts objects of the tenant itself until it may have size bytes more.
func (p *pool) admit(size int, tenant string, as turn, looks *int) error {
	quota := p.w.quota(tenant)
	if tenant == "" || quota == 0 {
		return nil
	}
	need := shmring.PoolExtent(size)
	if need > quota {
		return &TooLargeError{Size: int(need), Limit: int(quota), Tenant: tenant}
	}
	var held idSet // by readers
	for {
		t := p.tenants[tenant]
		if t == nil {
			return nil
		}
		if as == passing && !t.line.mayPass(need, quota) {
			return p.quotaError(t, tenant, need, quota, held)
		}
		if t.used+need <= quota {
			return nil
		}
		if t.used-t.idleBytes+need <= quota {
			if victim, ok := p.cheapest(t.idle.items, held); ok {
				held.add(p.evict([]uint32{victim.id}))
				continue
			}
		}
		if !p.look(looks) {
			return p.quotaError(t, tenant, need, quota, held)
		}
	}
}

func (p *pool) quotaError(t *tenant, name string, need, quota int64, held idSet) error {
	used := t.used - t.idleBytes
	for id := range held {
		if o := p.w.objects[id]; o != nil && o.class == classIdle {
			used += o.extent
		}
	}
	return &QuotaError{Tenant: name, Need: need, Used: used, Quota: quota}
}

// hasPassed counts n bytes that someone got before those who wait.
func (p *pool) hasPassed(n int64, tenant string, as turn) {
	p.w.line.hasPassed(n)
	if t := p.tenants[tenant]; t != nil && as == passing {
		t.line.hasPassed(n)
	}
}

// lineOf returns where to wait after an ErrFull.
func (p *pool) lineOf(err error, tenant string) *line {
	if q := (*QuotaError)(nil); errors.As(err, &q) {
		return &p.tenantOf(tenant).line
	}
	return &p.w.line
}
