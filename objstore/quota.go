package objstore

import (
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
func (p *pool) admit(size int, tenant string) error {
	quota := p.w.quota(tenant)
	if tenant == "" || quota == 0 {
		return nil
	}
	need := shmring.PoolExtent(size)
	if need > quota {
		return &TooLargeError{Size: int(need), Limit: int(quota), Tenant: tenant}
	}
	own := map[uint32]*object{}
	for p.tenants[tenant]+need > quota {
		if len(own) == 0 {
			for id, o := range p.w.objects {
				if o.tenant == tenant {
					own[id] = o
				}
			}
		}
		victim, ok := p.cheapest(own, nil)
		if !ok {
			return &QuotaError{Tenant: tenant, Need: need, Used: p.tenants[tenant], Quota: quota}
		}
		p.evict([]uint32{victim.id})
		delete(own, victim.id) // gone, or looked at by a reader
		if len(own) == 0 && p.tenants[tenant]+need > quota {
			return &QuotaError{Tenant: tenant, Need: need, Used: p.tenants[tenant], Quota: quota}
		}
	}
	return nil
}
