package daemon

import (
	"maps"
	"sync"

	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/disk"
)

// quotas are who may have how much: by the settings, and by HTTP, which takes the place of the settings for a tenant.
//
// See docs/decisions.md, "A quota set by HTTP outlives the daemon, and bounds the disk if there is one".
type quotas struct {
	mu     sync.Mutex
	config Config           // whose settings are in force
	byHTTP map[string]int64 // at the level that bounded returns
}

// setKept gives the levels their quotas before the store is opened, which goes on with pending writes at
// once: where the settings have less than HTTP has set, these would cost the tenant what it has. It returns
// those of memory, which are the store's, too.
func (l *levels) setKept(byHTTP func(level string) map[string]int64) (inMemory map[string]int64) {
	l.quotas.mu.Lock()
	defer l.quotas.mu.Unlock()
	l.quotas.byHTTP = byHTTP(l.bounded().Name())
	return l.applyToLevels()
}

// setQuotas makes the quotas of another configuration those of the levels.
func (l *levels) setQuotas(c Config) {
	l.quotas.mu.Lock()
	defer l.quotas.mu.Unlock()
	l.quotas.config = c
	l.apply()
}

// setByHTTP makes what get returns the quotas of single tenants by HTTP, in the order of its calls.
func (l *levels) setByHTTP(get func(level string) map[string]int64) {
	l.quotas.mu.Lock()
	defer l.quotas.mu.Unlock()
	l.quotas.byHTTP = get(l.bounded().Name())
	l.apply()
}

// apply hands the quotas to the levels and the store. The caller has the lock.
func (l *levels) apply() {
	l.store.SetQuotas(l.applyToLevels(), l.quotas.config.Quota)
}

// applyToLevels hands the quotas to the levels, and returns those of memory. The caller has the lock.
func (l *levels) applyToLevels() (inMemory map[string]int64) {
	c := l.quotas.config
	inMemory = quotasOf(c.Quotas)
	if d := l.disk(); d != nil {
		onDisk := quotasOf(c.DiskQuotas)
		maps.Copy(onDisk, l.quotas.byHTTP)
		d.SetQuotas(onDisk, c.DiskQuota)
	} else {
		maps.Copy(inMemory, l.quotas.byHTTP)
	}
	l.memory.SetQuotas(inMemory, c.Quota)
	return inMemory
}

// disk returns the level on a disk, or nil.
func (l *levels) disk() *disk.Level {
	for _, x := range l.lower {
		if d, ok := x.(*disk.Level); ok {
			return d
		}
	}
	return nil
}

// bounded returns the level whose quotas HTTP shows and sets.
func (l *levels) bounded() tier.Level {
	if d := l.disk(); d != nil {
		return d
	}
	return l.memory
}

// boundedQuotas returns what is in force at that level: of each tenant, of single ones by the settings, and by HTTP.
func (l *levels) boundedQuotas() (each int64, configured, byHTTP map[string]int64) {
	l.quotas.mu.Lock()
	defer l.quotas.mu.Unlock()
	c := l.quotas.config
	if l.disk() != nil {
		return c.DiskQuota, quotasOf(c.DiskQuotas), l.quotas.byHTTP
	}
	return c.Quota, quotasOf(c.Quotas), l.quotas.byHTTP
}
