package objstore

import (
	"context"
	"time"

	"github.com/ringcache/ringcache/objstore/internal/door"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/segment"
	"github.com/ringcache/ringcache/shmstore"
)

// Store is a writer of objects in a segment: a pool or a FIFO, see the package's page. There
// is one writer for a segment.
type Store interface {
	// Begin starts a request to the engine. No other with its id may be open.
	Begin(id string) (Request, error)

	// Cached reports whether a key is in the store. It changes nothing: the answer holds
	// until the next Put of anyone.
	Cached(key string) bool
	// Remove makes a key absent, so that it can be put anew, and reports whether it was
	// there. Handles that were given out can be read as before; the object goes once
	// they were.
	Remove(key string) bool
	// Evict makes the object under a key go at once if nobody can need it, and reports
	// whether it did. It fails with an fs.ErrInvalid in a FIFO, which frees only the
	// oldest.
	Evict(key string) (bool, error)
	// Clear makes every key absent. It fails with [ErrBusy] while a reservation or a
	// lease is open.
	Clear() error
	// Verify checks that a handle that came from outside is the current one of its key
	// and has a valid signature, where the generation has one. It fails with
	// [SignatureError].
	Verify(key string, h serde.Address) error
	// VerifyItem checks an item that a client supplied before it is handed to the engine:
	// one that claims to be an address must pass Verify for the item's key, else it would
	// show the client another client's object. Other items, and nil, pass. It counts no
	// use.
	VerifyItem(key string, it *serde.Item) error
	// Fence marks a moment in the order of what was sent to the engine. Take it, then send
	// a call that every worker executes in order behind everything sent before (a
	// collective call; the answer of the engine's loop alone proves nothing, since a batch
	// may be on its way to the workers), and call Passed when all have answered: then what
	// was aborted before leaves quarantine. In a FIFO nothing waits for a fence.
	Fence() shmstore.Fence
	// ResetReaders reports to the store that the engine was restarted: the processes that
	// read so far are gone, and readers new ones (0: as many as before) read from now on.
	// Requests that were committed end, quarantine ends, and counts begin anew; the
	// contents stay. Requests that were not committed go on, and their handles stay good.
	ResetReaders(readers int) error

	// State returns a copy of the writer's tables, with the read counts as they are in
	// the segment now. Reserved and discarded chunks are left out.
	State() (State, error)
	// Stats returns sums, without looking at every object as State does.
	Stats() (shmstore.Stats, error)
	// Holders lists what is open: requests by id, of which those with no key do not block
	// Close, then reservations by key, then views.
	Holders() []shmstore.Holder
	// CheckStructure verifies everything that must hold between calls and returns every
	// violation it finds, joined. A closed store has none.
	CheckStructure() error

	// Close unmaps the segment and, if the store created or adopted it, removes it, as
	// vLLM's writer does. It fails with [shmstore.BusyError], and does nothing, while a
	// reservation, a lease or a view is open. Closing twice is fine.
	Close() error
	// Detach is Close, but leaves the segment as it is. [Adopt] takes over that of a pool;
	// workers go on reading meanwhile.
	Detach() error
	// Shutdown is Close that waits. From now on Begin fails with an fs.ErrClosed; open
	// requests go on. When ctx ends first the error is a [shmstore.BusyError], which wraps ctx's;
	// the store stays usable for what is open, and Shutdown can be called again.
	Shutdown(ctx context.Context) error
	// Abandon closes the store by force, whatever is open, for use with defer. If the
	// store created or adopted the segment, its names are removed at once. Every later
	// call fails with an fs.ErrClosed, or does nothing. Memory that a reservation, a view or
	// the value of Request.Stored still gives access to stays mapped until that ends as
	// usual.
	Abandon() error

	// Name returns the name of the segment.
	Name() string
	// Segment returns the segment, for its bytes and its secret. Only Close may close it.
	Segment() *segment.Segment

	// Steps is for package upstream. It keeps other packages from implementing Store.
	Steps(key door.Key, lock Locker, lockTimeout time.Duration) steps
}

// Create makes a store: a pool, or a FIFO if Options.FIFO is set. The store makes a segment
// of its own, and removes it at its end, unless there is an Options.Segment. The errors are
// those of segment.Create.
func Create(o Options) (Store, error) {
	o, err := o.resolve()
	if err != nil {
		return nil, err
	}
	if o.FIFO {
		return asStore(createFIFO(o))
	}
	return asStore(createPool(o))
}

// asStore returns no store, and not one that is nil, with an error.
func asStore[S Store](s S, err error) (Store, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Adopt takes over the segment of a pool whose writer was killed, or detached.
// Objects stay, with keys and notes; the secret stays, so handles that are under way stay
// good and workers go on reading; ids go on behind all that were given out. What a
// request of the dead writer may still need is in quarantine until a [Store.Fence] passes or
// the readers are reset. If the engine goes on, it may still run that writer's requests:
// let them end or abort them, and take the fence then.
//
// Where an entry of the sidecar and the bytes of its object don't agree, it is
// dropped, and no handle leads there any more. If a request of the dead writer still
// needs the object, its worker will fail: where Adoption.Dropped is not 0, restart the
// engine unless it has no request.
//
// The options must be the segment's: Name, RingSize, Generation; MaxObjects and
// ReaderSlots are taken from it. Readers may differ if the engine was restarted
// too: call ResetReaders then. The store owns the segment, as if it had created
// it. Errors are those of segment.Adopt, and an fs.ErrInvalid for a FIFO, whose segment
// contains no table of objects.
//
// If Adopt itself is killed, the next one begins again.
func Adopt(o Options) (Store, shmstore.Adoption, error) {
	p, a, err := adopt(o)
	s, err := asStore(p, err)
	return s, a, err
}

// ObjectState is what a writer keeps of one object.
type ObjectState struct {
	shmstore.ObjectState
	Uses  int64 // given out
	Reads int64 // counted reads; in a FIFO the object is free at Uses * Readers
	// WrittenOff are the reads that are missing and never come, of a pool; negative if
	// there were too many.
	WrittenOff int64
}

// State is a copy of what a writer keeps: in a FIFO the oldest object first, in a pool
// by address.
type State struct {
	Objects []ObjectState
	Ring    shmring.RingState // of a FIFO
	Used    uint64            // bytes in use, with padding
	Leases  int               // of requests that have not ended
	Readers int
	// Quarantined is the number of objects that wait for a fence or the counts of
	// an aborted request.
	Quarantined int
	// DeadReaders is the number of readers of this library that were found dead.
	DeadReaders int
}
