package objstore

import (
	"context"
	"time"

	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/segment"
	"github.com/ringcache/ringcache/shmstore"
)

// Store is what a [Pool] and a [FIFO] have in common: a writer of objects in a segment. There
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
	// Detach is Close, but leaves the segment as it is. [AdoptPool] takes over that of a pool;
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

	// withSteps returns those of package upstream. The method keeps other packages from implementing Store.
	withSteps(lock Locker, lockTimeout time.Duration) steps
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
