package objstore

import (
	"context"

	"github.com/ringcache/ringcache/serde"
)

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
	Lookup(key string) (serde.Address, error)
	// Keep is Lookup without a use: the object stays until the request ends, whether or
	// not its handle is sent. Before the handle is sent, SetUses has to count it. note is
	// PutOptions.Note of the object, and must not be written to.
	Keep(key string) (h serde.Address, note []byte, err error)
	// SetUses sets how many times the request sends the handle of an object that it has,
	// kept, looked up or put: one for each place in the request that names the object,
	// times the number of children that read it (sampling with n > 1). Every reader
	// counts each of them. Zero takes all of them back.
	//
	// SetUses fails with [ErrFull], and changes nothing, if the readers' count would
	// overflow: then send the value inline; with an fs.ErrInvalid for another handle; and
	// with [ErrEnded].
	SetUses(h serde.Address, n int) error
	// Put stores a value under a key and counts its first use. No error leaves anything
	// behind:
	//   - [ErrKeyExists]: use Lookup;
	//   - [shmstore.TooLargeError], or an [ErrFull] after what nobody needs was evicted: send the
	//     value inline;
	//   - serde's errors, if the value can't be encoded, [ErrEnded], and an fs.ErrClosed.
	Put(key string, v serde.Value, o PutOptions) (serde.Address, error)
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
	// Errors: [SignatureError], [StaleError], [shmstore.CorruptError]; an fs.ErrInvalid for a handle
	// of an object that the request does not have; [ErrEnded]; an fs.ErrClosed.
	Stored(h serde.Address) (serde.Value, error)
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
	// In a pool its objects go into quarantine, until the readers' counts are complete, a
	// [Fence] passes, or Options.QuarantineTTL is over. Before Commit it does nothing and
	// is counted, as Finish is.
	Abort()
	// Ended reports whether the request has ended.
	Ended() bool
	// Begin begins the request again, under another id or the same, once it has ended. It is
	// Begin of the store, without memory for one more request. Nobody else may use the
	// request any more: who rolls it back late would end what was begun here. Begin fails
	// with an fs.ErrInvalid, and changes nothing, if the request has not ended, if a
	// reservation of it was neither committed nor discarded, or if [Store.ResetReaders] ended
	// it while its owner has a value of Stored; and with the errors of Store.Begin.
	Begin(id string) error
}

// PutOptions describe an object besides its value.
type PutOptions struct {
	// Tenant is whose bytes they are, see Options.Quotas.
	Tenant string
	// Note is kept with the object, see Request.Keep. In a pool it is in the segment,
	// between what readers look at, and survives this process.
	Note []byte
	// Wait, if not nil, makes the call wait for room until it ends; its error is then
	// both the context's and an [ErrFull].
	//
	// Those who wait get room in the order in which they came. A call that does not
	// wait may take what they wait for, within limits: after a store full of bytes, as
	// many are refused (shmstore.FullError.Waiting), and so on. So whoever waits for much gets it
	// once the requests that are open then have ended. Uses of objects that are there
	// are never refused: an object that is leased without a pause stays where it is.
	Wait context.Context
}
