package mmcache

import (
	"fmt"

	"github.com/ringcache/ringcache/internal/ctxmutex"
)

// Want names an item of a request.
type Want struct {
	// Key is its cache key, vLLM's mm_hash (package mmhash).
	Key string
	// Bytes is the most that it may take, by vLLM's rules (lrusync.ItemSize) and
	// with its prompt updates. 0 is Options.MaxItem.
	Bytes int64
	// Tenant is whose bytes it is in mode shm, see SharedOptions.Quotas.
	Tenant string
	// Modality goes into the address items of vLLM before 0.16. Package engine sends its
	// placeholder's.
	Modality string
}

// wanted is an item of a request.
type wanted struct {
	key, modality, tenant string
	places                int            // in the request
	making                ctxmutex.Mutex // its holder may change what follows
	charge                int64          // bytes of the request's claim that are for the item
	entry                 entry          // none before the request has the item
	produce               Producer
	found                 bool // Begin had it for good: the entry does not change any more
	hit, verified         bool // verified by Options.VerifyHits
}

// few is how many items a request has room for in its own allocation: as many as nearly
// all requests have.
const few = 4

// newRequest returns a request with memory for n items: one allocation for a few.
func newRequest(n int) *Request {
	switch {
	case n <= 1:
		r := &struct {
			Request
			items  [1]wanted
			places [1]*wanted
			wires  [1]Wire
		}{}
		r.Request.items, r.Request.places, r.spare = r.items[:0], r.places[:0], r.wires[:n]
		return &r.Request
	case n <= few:
		r := &struct {
			Request
			items  [few]wanted
			places [few]*wanted
			wires  [few]Wire
		}{}
		r.Request.items, r.Request.places, r.spare = r.items[:0], r.places[:0], r.wires[:n]
		return &r.Request
	}
	return &Request{
		items: make([]wanted, 0, n), places: make([]*wanted, 0, n), spare: make([]Wire, n),
		byKey: make(map[string]*wanted, n),
	}
}

// want adds an item to a request.
func (r *Request) want(w Want) error {
	if w.Key == "" {
		return fmt.Errorf("%w: Want without a Key; see package mmhash", errInvalid)
	}
	if w.Bytes < 0 {
		return fmt.Errorf("%w: Want.Bytes %d of key %q", errInvalid, w.Bytes, w.Key)
	}
	i := r.find(w.Key)
	if i == nil {
		r.items = append(r.items, wanted{}) // there is room: places point to items
		i = &r.items[len(r.items)-1]
		i.key, i.modality, i.tenant, i.charge = w.Key, w.Modality, w.Tenant, w.Bytes
		if i.charge == 0 {
			i.charge = r.c.o.MaxItem
		}
		if r.byKey != nil {
			r.byKey[w.Key] = i
		}
	}
	i.places++
	r.places = append(r.places, i)
	return nil
}

// find returns the item of a key, or nil.
func (r *Request) find(key string) *wanted {
	if r.byKey != nil {
		return r.byKey[key]
	}
	for i := range r.items {
		if r.items[i].key == key {
			return &r.items[i]
		}
	}
	return nil
}
