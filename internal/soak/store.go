package main

import (
	"context"

	"github.com/ringcache/ringcache/shmstore"
)

// store is what a writer needs of the stores that it may have.
type store interface {
	// begin starts a request for objects of these keys.
	begin(id string, needs []need) (request, error)
	fence() shmstore.Fence
	// reset is called when all readers were replaced.
	reset() error
	remove(key string) error
	clear(ctx context.Context) error
	check() error
	// contents compares the bytes of everything that has a key, and returns it.
	contents() ([]object, error)
	// end closes the store: the segment is kept for the next writer, or removed.
	end(ctx context.Context, keep bool) error
}

type request interface {
	// obtain looks an object up or makes it. An error that [refused] accepts is normal.
	obtain(ctx context.Context, w need) error
	// commit sends what was obtained, to be read so many times by each reader.
	commit(uses int) ([]object, error)
	rollback()
	finish()
	abort()
}

// need is an object that a request wants, as it is to be made if it isn't there.
type need struct {
	object
	tenant  string
	discard bool // half of it is written, then it is discarded
	wait    bool // for room, for as long as the context of obtain lasts
	verify  bool // compare in this process, too
	kept    bool // it must be there, and not be made
	spoil   bool // write a wrong byte, to show that it is found
}

func (w need) fill(b []byte, at int) {
	fillContent(b, w.seed(), at)
	if w.spoil && len(b) > 0 {
		b[len(b)-1] ^= 0x10
	}
}

// storeOptions are those of a segment, for its writers and readers.
type storeOptions struct {
	Kind    string `enum:"pool,fifo,bytes,cache" default:"pool" help:"Which store."`
	Name    string `help:"Name of the segment."`
	Dir     string `help:"Folder of shared memory."`
	Size    int    `help:"Bytes of the segment."`
	Readers int    `help:"Processes that read every object."`
}

// maxObject is the most bytes of one object.
func (o storeOptions) maxObject() int { return o.Size / 8 }

// quota bounds the bytes of one tenant.
func (o storeOptions) quota() int64 { return int64(o.Size / 4) }

const (
	slots         = 64
	boundedTenant = "bounded"
)

// openStore creates a store, or adopts it. watch is called for each key that is published or removed.
func openStore(o storeOptions, adopt bool, watch func(shmstore.Change)) (store, shmstore.Adoption, error) {
	switch o.Kind {
	case "bytes":
		return openPayloads(o, adopt, watch)
	case "cache":
		return openCache(o, adopt)
	}
	return openObjects(o, adopt, watch)
}
