package objstore

import (
	"context"
	"time"

	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/segment"
	"github.com/ringcache/ringcache/shmstore"
)

// Store is what a [Pool] and a [FIFO] have in common: a writer of objects in a segment.
// There is one writer for a segment.
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
	Verify(key string, h Handle) error
	// ResetReaders reports to the store that the engine was restarted: the processes that
	// read so far are gone, and readers new ones (0: as many as before) read from now on.
	// Requests that were committed end, quarantine ends, and counts begin anew; the
	// contents stay. Requests that were not committed go on, and their handles stay good.
	ResetReaders(readers int) error

	// State returns a copy of the writer's tables, with the read counts as they are in
	// the segment now. Reserved and discarded chunks are left out.
	State() (State, error)
	// Stats returns sums, without looking at every object as State does.
	Stats() (Stats, error)
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
	// Detach is Close, but leaves the segment as it is. AdoptPool takes over that of a
	// Pool; workers go on reading meanwhile.
	Detach() error
	// Shutdown is Close that waits. From now on Begin fails with [ErrClosed]; open
	// requests go on. When ctx ends first the error is a [shmstore.BusyError], which wraps ctx's;
	// the store stays usable for what is open, and Shutdown can be called again.
	Shutdown(ctx context.Context) error
	// Abandon closes the store by force, whatever is open, for use with defer. If the
	// store created or adopted the segment, its names are removed at once. Every later
	// call fails with [ErrClosed], or does nothing. Memory that a reservation, a view or
	// the value of Request.Stored still gives access to stays mapped until that ends as
	// usual.
	Abandon() error

	// Name returns the name of the segment.
	Name() string
	// Segment returns the segment, for its bytes and its secret. Only Close may close it.
	Segment() *segment.Segment
	// Generation returns the generation that the store is written in.
	Generation() *pycompat.Generation
}

// Request ties objects to a request to the engine: what it looks up or puts stays in
// the store until it ends.
//
//	r, err := store.Begin("request-1")
//	defer r.Rollback() // does nothing after Commit
//	h, err := r.Lookup(key) // or r.Put, r.Reserve
//	send(h)
//	r.Commit()
//	// later: r.Finish(), or r.Abort()
//
// Its methods may be called by any goroutine.
type Request interface {
	// ID returns the request's id.
	ID() string
	// Lookup returns a handle of the object under a key, which stays until the request
	// ends, and counts one use of it: every reader gets the handle once. Lookup fails with
	// [ErrNotFound]; with [ErrFull] after so many uses that the readers' count would
	// overflow; and with [ErrEnded].
	Lookup(key string) (Handle, error)
	// Keep is Lookup without a use: the object stays until the request ends, whether or
	// not its handle is sent. Before the handle is sent, SetUses has to count it. note is
	// PutOptions.Note of the object, and must not be written to.
	Keep(key string) (h Handle, note []byte, err error)
	// SetUses sets how many times the request sends the handle of an object that it has,
	// kept, looked up or put: one for each place in the request that names the object,
	// times the number of children that read it (sampling with n > 1). Every reader
	// counts each of them. Zero takes all of them back.
	//
	// SetUses fails with [ErrFull], and changes nothing, if the readers' count would
	// overflow: then send the value inline; with [ErrInvalid] for another handle; and
	// with [ErrEnded].
	SetUses(h Handle, n int) error
	// Put stores a value under a key and counts its first use. No error leaves anything
	// behind:
	//   - [ErrKeyExists]: use Lookup;
	//   - [shmstore.TooLargeError], or an [ErrFull] after what nobody needs was evicted: send the
	//     value inline;
	//   - serde's errors, if the value can't be encoded, [ErrEnded], and [ErrClosed].
	Put(key string, v serde.Value, o PutOptions) (Handle, error)
	// Reserve takes the chunk for a value whose tensors need not have data yet: only
	// their dtype and shape. Everything else of the value, and the data of those that
	// have it, is written at once. The errors are those of Put.
	Reserve(key string, v serde.Value, o PutOptions) (*Reservation, error)
	// Stored returns what a worker finds under a handle of the request, in the way of a
	// worker: Stored verifies the signature with the secret that is in the segment now,
	// checks id and place, and decodes the chunk. No use is counted. A handle that
	// workers can't use stops their engine, so ask before it is sent.
	//
	// The value is a view of the segment, valid until Finish, Abort or Rollback ends the
	// request, also if the store is abandoned before.
	//
	// Errors: [SignatureError], [StaleError], [shmstore.CorruptError]; [ErrInvalid] for a handle
	// of an object that the request does not have; [ErrEnded]; [ErrClosed].
	Stored(h Handle) (serde.Value, error)
	// Drop gives up what the request has under a key, as if it had never asked for it. It
	// does nothing once the request was committed.
	Drop(key string)

	// Commit reports that the handles were sent, or are about to be: the engine may read
	// from now on.
	Commit() error
	// Rollback ends a request that was not sent and never will be: what it used counts
	// as never used. It does nothing after Commit.
	Rollback()
	// Finish ends a request that the engine reported as finished: every worker has
	// resolved its handles. Before Commit it does nothing, since that is for Rollback,
	// and is counted in Stats.Misused: the request is open as before. When the request
	// has ended it does nothing.
	Finish()
	// Abort ends a request that was cancelled after it was sent: a worker may still read.
	// In a Pool its objects go into quarantine, until the readers' counts are complete, a
	// [Fence] passes, or Options.QuarantineTTL is over. Before Commit it does nothing and
	// is counted, as Finish is.
	Abort()
	// Ended reports whether the request has ended.
	Ended() bool
}

// PutOptions are what can be said of an object besides its value.
type PutOptions struct {
	// Tenant is whose bytes they are, see Options.Quotas.
	Tenant string
	// Cost is the time that making the object again would take, by which a Pool
	// chooses what to evict. 0 estimates it from the size.
	Cost time.Duration
	// Note is kept with the object, see Request.Keep. With Pool it is in the segment,
	// between what readers look at, and survives this process.
	Note []byte
	// Wait, if not nil, makes the call wait for room until it ends; its error is then
	// both the context's and an [ErrFull].
	//
	// Those who wait get room in the order in which they came. A call that does not
	// wait may take what they wait for, within limits: after a store full of bytes, as
	// many are refused (shmstore.FullError.Waiting), in turns. So who waits for much gets it
	// once the requests that are open then have ended. Uses of objects that are there
	// are never refused: an object that is leased without a pause stays where it is.
	Wait context.Context
}

// ObjectState is what a writer keeps of one object.
type ObjectState struct {
	shmstore.ObjectState
	Uses  int64 // given out
	Reads int64 // counted reads; in a FIFO the object is free at Uses * Readers
	// WrittenOff are the reads that are missing and never come, of a Pool; negative if
	// there were too many.
	WrittenOff int64
}

// State is a copy of what a writer keeps: in a FIFO the oldest object first, in a Pool
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
