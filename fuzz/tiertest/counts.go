package tiertest

import (
	"fmt"

	"github.com/ringcache/ringcache/tier"
)

// counts: Usage is right after every call.
func counts(b *bed) {
	b.open(0)
	var there []tier.Object
	var usages []tier.Usage
	for i := range 30 {
		o := object(fmt.Sprintf("%d", i), int64(i*i*13%5000))
		o.Tenant = []string{"", "a", "b"}[i%3]
		if i > 0 {
			o.Parent = fmt.Sprintf("%d", i/2-i%2)
		}
		if o.Parent == o.Name {
			o.Parent = ""
		}
		before := b.usage(there...)
		usages = append(usages, before)
		b.put(o)
		there = append(there, o)
		after := b.usage(there...)
		if after.Bytes != -1 && after.Bytes-before.Bytes < o.Size {
			b.Fatalf("Put of %d bytes added %d to the bytes of Usage", o.Size, after.Bytes-before.Bytes)
		}
		if after.Held > 0 {
			b.Fatalf("Usage has %d bytes that can't be evicted, and nothing is held", after.Held)
		}
		b.get(o)
		b.put(o)
		if again := b.usage(there...); again.Bytes != after.Bytes {
			b.Fatalf("Get and Put of what is there changed the bytes of Usage from %d to %d", after.Bytes, again.Bytes)
		}
	}
	for i := len(there) - 1; i >= 0; i-- {
		b.delete(there[i])
		after := b.usage(there[:i]...)
		if after.Bytes != usages[i].Bytes {
			b.Fatalf("Usage had %d bytes with %d objects, and has %d with the same objects", usages[i].Bytes, i,
				after.Bytes)
		}
		for tenant := range usages[i].Tenants {
			if after.Tenants[tenant] != usages[i].Tenants[tenant] {
				b.Fatalf("Usage had %d bytes of tenant %q with %d objects, and has %d with the same objects",
					usages[i].Tenants[tenant], tenant, i, after.Tenants[tenant])
			}
		}
		if after.Evicted > 0 || after.Corrupt > 0 {
			b.Fatalf("Usage has %d evicted and %d corrupt objects, and there were none", after.Evicted, after.Corrupt)
		}
	}
	b.has()
}
