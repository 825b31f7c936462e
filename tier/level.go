package tier

import (
	"context"
	"io"
	"iter"
)

// A Level keeps objects in one kind of memory. Its methods may be called from any goroutine.
//
// Calls take batches, and answer for each element alone: an element's error changes nothing
// about the others. When ctx ends, the elements that were not done get its error, and nothing
// half-done stays visible. A level that is away answers ErrUnavailable; after Close every
// answer is fs.ErrClosed. A level never calls back into another level.
type Level interface {
	// Name names the level in events, counters and errors: "memory", "disk", "redis", "s3".
	Name() string
	// Stat describes the objects that are there, in the order of the keys, without reading
	// their bytes or counting as a use. The errors are ErrNotFound, ErrPending of an object
	// whose bytes are not complete yet, and ErrUnavailable.
	Stat(ctx context.Context, keys []Key) []Found
	// Get reads objects. It counts as a use. An object is returned only if every byte is what
	// was put: a level without that certainty by its nature verifies a checksum.
	Get(ctx context.Context, gets []Get)
	// Put stores objects, in the order of the batch, so that a parent precedes its children. What
	// is there already stays as it is, which is a success. An element's error leaves nothing
	// behind. ErrFull and ErrTooLarge are ordinary answers.
	Put(ctx context.Context, puts []Put)
	// Delete removes objects, whatever their children. The answers, in the order of the keys,
	// are nil, ErrNotFound, ErrInUse of what a lease has, and ErrUnavailable.
	Delete(ctx context.Context, keys []Key) []error
	// List lists the objects of a space, or of all spaces if space is empty, in no order.
	// Objects that come or go meanwhile may be in the list. An error ends the list.
	List(ctx context.Context, space string) iter.Seq2[Object, error]
	// Usage reports what the level has now. It does no input or output.
	Usage() Usage
	// Close ends the level and waits for its calls. What a level keeps beyond the process stays.
	// Closing twice is fine.
	Close() error
}

// Found is the answer of Stat about one key.
type Found struct {
	Object Object
	Err    error
}

// A Get asks for the bytes of one object. The caller sets Key, and Into or To if it wants;
// the level sets the rest.
type Get struct {
	Key Key
	// Into, if not nil, is called once when the object was found, with its description, and
	// returns Object.Size bytes of memory for it: so that a copy goes straight to its
	// place. Its error becomes Err. After an error the memory has any content. It may be called
	// from another goroutine, and must not call the level.
	Into func(Object) ([]byte, error)
	// To, if not nil, is written to instead. The bytes are written as they are read: what is
	// written counts only if Err is nil.
	To io.Writer
	// NoUse is set by who reads for work of its own, and not for somebody who asked for the object: to
	// eviction it is no use.
	NoUse bool

	Object Object
	// Bytes are the object's: the memory of Into, or memory of its own; nil with To.
	Bytes []byte
	// Err is nil, ErrNotFound (with ErrCorrupt if damage was found), ErrPending,
	// ErrUnavailable, or the error of Into, To or the context.
	Err error
}

// A Put is an object to be stored. The caller sets Object, and Bytes or From; the level sets Err.
type Put struct {
	Object Object
	// Bytes are Object.Size bytes. They must not change before Put returns.
	Bytes []byte
	// From, if not nil, is read instead, for exactly Object.Size bytes. More or fewer are an
	// io.ErrUnexpectedEOF or fs.ErrInvalid, and nothing is stored.
	From io.Reader

	// Err is nil, ErrFull, ErrTooLarge, ErrPending if somebody else is writing the
	// object, ErrUnavailable, fs.ErrInvalid, fs.ErrExist if something that is not the level's lies
	// in the object's place, or the error of From or the context.
	Err error
}

// failGets answers every element with an error.
func failGets(gets []Get, err error) {
	for i := range gets {
		gets[i].Object, gets[i].Bytes, gets[i].Err = Object{}, nil, err
	}
}

// failPuts answers every element with an error.
func failPuts(puts []Put, err error) {
	for i := range puts {
		puts[i].Err = err
	}
}

// Usage is what a level has. Sizes are in bytes; -1 is unknown.
type Usage struct {
	Objects  int64
	Bytes    int64 // of objects, with what the level adds to each
	Capacity int64 // the most of Bytes; 0 is no limit of the level's own
	// Held of the bytes can't be evicted now: leases have them, or they are being written.
	Held int64
	// Evicted and Corrupt count objects since the level was opened: those that went for
	// room, and those that went because they were damaged.
	Evicted, Corrupt int64
	// Tenants are the bytes of each tenant; nil if the level does not count them.
	Tenants map[string]int64
}
