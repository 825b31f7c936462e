package objstore

import (
	"fmt"

	"github.com/ringcache/ringcache/shmring"
)

// fullError says who is in the way; readers hold the objects held.
func (p *pool) fullError(size int, held idSet) error {
	b := &Blocked{
		Free: p.room - int64(p.mem.Used()), LargestHole: int64(p.mem.Largest()),
		Reserved: p.bytes[classReserved], Leased: p.bytes[classLeased], Quarantined: p.bytes[classQuarantined], Evictable: p.bytes[classIdle],
	}
	for id := range held {
		if o := p.w.objects[id]; o != nil && o.class == classIdle {
			b.Viewed += o.extent
			b.Evictable -= o.extent
		}
	}
	if p.noEntry() {
		b.MaxObjects = p.ctl.Options().Objects
	}
	return &FullError{
		Need: size + shmring.HeaderSize, Used: p.mem.Used(), Size: p.w.opt.RingSize, Waiting: p.w.line.wanted(), Blocked: b,
	}
}

// Blocked says what a pool's bytes are taken by, when there is no room.
type Blocked struct {
	Free        int64 // in holes
	LargestHole int64
	Reserved    int64 // being written
	Leased      int64 // by open requests, or touched
	Quarantined int64 // aborted, and maybe still to be read: a Fence proves more
	Viewed      int64 // looked at in place by readers
	Evictable   int64 // between others, so that they make no run that is long enough
	MaxObjects  int   // not 0: so many objects are the most
}

func (b *Blocked) String() string {
	if b.MaxObjects > 0 {
		return fmt.Sprintf("%d objects are the most that the sidecar has room for, and all are in use; raise MaxObjects", b.MaxObjects)
	}
	return fmt.Sprintf("%d leased, %d in quarantine, %d being written, %d viewed by readers, %d evictable between them, %d free with the largest hole of %d",
		b.Leased, b.Quarantined, b.Reserved, b.Viewed, b.Evictable, b.Free, b.LargestHole)
}
