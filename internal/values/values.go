package values

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/ringcache/ringcache/tier"
)

// Store is what Values needs of a tier.Store.
type Store interface {
	Stat(ctx context.Context, keys []tier.Key) []tier.Located
	Delete(ctx context.Context, keys []tier.Key) []error
}

// Holder has what a connection pins and reserves. Its methods are those of tier.StoreLease, which keeps the names
// of what it holds by itself.
type Holder interface {
	Pin(keys []tier.Key) []tier.Placed
	Unpin(keys []tier.Key)
	Reserve(objects []tier.Object) []tier.Placed
	Commit(keys []tier.Key) []error
	Abort(keys []tier.Key) []error
	// While calls do, and nobody but the caller and the clock ends meanwhile what is held. do must not call the
	// holder. An error says that do was not called.
	While(do func()) error
}

// Options are what Values are made of. All fields but Patience are needed.
type Options struct {
	Store  Store
	Holder Holder
	// ID is unique among all Values over the store, and without a zero byte. It is a part of the names of reservations
	// that are never committed.
	ID string
	// Patience is the longest wait for a lower level; 0 is half a minute.
	Patience time.Duration
}

// Values are the values of a store, as one connection gets and puts them. One goroutine at a time may use them.
type Values struct {
	o Options

	// What Pin, Unpin and Use hand to the holder, so that a value that is there takes no memory here.
	key    [1]tier.Key
	placed tier.Placed
	use    func(o tier.Object, b []byte) error
	err    error // of use
	while  func()
}

// New returns Values.
func New(o Options) *Values {
	if o.Patience == 0 {
		o.Patience = 30 * time.Second
	}
	v := &Values{o: o}
	v.while = func() { v.err = v.use(v.placed.Object, v.placed.Bytes) }
	return v
}

// ErrSlow reports that a lower level did not answer in time.
var ErrSlow = fmt.Errorf("values: a lower level did not answer in time: %w", tier.ErrUnavailable)

// firstWait and lastWait are the times between two questions whether a value was fetched.
const (
	firstWait = 200 * time.Microsecond
	lastWait  = 20 * time.Millisecond
)

// patienceInUse is how long a value that is to be replaced may be in use.
const patienceInUse = time.Second

// Get calls use with a value in memory, which is only valid and unchanged until use returns. The errors are that of
// use, and of tier: ErrNotFound, also with ErrUnavailable; ErrReserved of what is being stored; ErrFull of
// what has no room in memory.
func (v *Values) Get(ctx context.Context, k tier.Key, use func(o tier.Object, b []byte) error) error {
	p, err := v.Pin(ctx, k)
	if err != nil {
		return err
	}
	defer v.Unpin(k)
	return v.Use(p, use)
}

// Use calls use with a value that Pin has returned, as Get does. It must not be called by use.
func (v *Values) Use(p tier.Placed, use func(o tier.Object, b []byte) error) error {
	v.placed, v.use = p, use
	held := v.o.Holder.While(v.while)
	err := v.err
	v.placed, v.use, v.err = tier.Placed{}, nil, nil
	if held != nil {
		return held
	}
	return err
}

// Pin pins a value in memory, and waits until it was fetched, until Unpin. The errors are those of Get.
func (v *Values) Pin(ctx context.Context, k tier.Key) (tier.Placed, error) {
	wait, until := firstWait, time.Now().Add(v.o.Patience)
	for {
		v.key[0] = k
		p := v.o.Holder.Pin(v.key[:])[0]
		if !errors.Is(p.Err, tier.ErrPending) || errors.Is(p.Err, tier.ErrReserved) {
			return p, p.Err
		}
		late := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			late.Stop()
			v.Unpin(k)
			return tier.Placed{}, context.Cause(ctx)
		case <-late.C:
		}
		if !time.Now().Before(until) {
			v.Unpin(k)
			return tier.Placed{}, ErrSlow
		}
		wait = min(2*wait, lastWait)
	}
}

// Unpin ends a Pin.
func (v *Values) Unpin(k tier.Key) {
	v.key[0] = k
	v.o.Holder.Unpin(v.key[:])
}

// Stat describes a value, of whatever level has it. The errors are those of tier.Store.Stat.
func (v *Values) Stat(ctx context.Context, k tier.Key) (tier.Object, error) {
	found := v.o.Store.Stat(ctx, []tier.Key{k})[0]
	return found.Object, found.Err
}

// Delete deletes a value from all levels. The errors are those of tier.Store.Delete.
func (v *Values) Delete(ctx context.Context, k tier.Key) error {
	return v.o.Store.Delete(ctx, []tier.Key{k})[0]
}

// Put stores a value, whose bytes are read from body straight into memory, and replaces another one under its key: see
// the page of the package. What has no room is not read. Nothing is stored unless all bytes have come. The errors are
// those of body, io.ErrUnexpectedEOF if it ended early, and of tier: ErrFull, ErrTooLarge; ErrPending of what somebody
// else is storing; and ErrInUse of another value that somebody reads, which stays. How much of body was read is not
// said.
func (v *Values) Put(ctx context.Context, o tier.Object, body io.Reader) error {
	switch was, err := v.Stat(ctx, o.Key); {
	case errors.Is(err, tier.ErrPending):
		return err
	case err == nil && !same(was, o):
		return v.replace(ctx, o, nil, nil, body)
	case err == nil:
		// What only a lower level has would come back when the new bytes are evicted, so it is fetched and compared.
		if p, err := v.Pin(ctx, o.Key); err == nil {
			return v.compare(ctx, p, o, body)
		}
	}
	for range tries {
		err := v.store(o, body)
		if !errors.Is(err, tier.ErrExists) {
			return err
		}
		p, err := v.Pin(ctx, o.Key)
		if err == nil {
			return v.compare(ctx, p, o, body)
		}
		if !errors.Is(err, tier.ErrNotFound) { // else it was evicted in between
			return err
		}
	}
	return fmt.Errorf("values: value %v comes and goes: %w", o.Key, tier.ErrPending)
}

// tries are how often Put finds that a value is there, and then that it is not.
const tries = 8

// makeWay deletes a value that is to be replaced. Somebody may just have been sent its last byte, and be about to unpin
// it, so makeWay waits a little for that.
func (v *Values) makeWay(ctx context.Context, k tier.Key) error {
	for wait, until := firstWait, time.Now().Add(patienceInUse); ; wait = min(2*wait, lastWait) {
		err := v.Delete(ctx, k)
		switch {
		case errors.Is(err, tier.ErrNotFound):
			return nil
		case !errors.Is(err, tier.ErrInUse) || !time.Now().Before(until):
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// same reports whether two objects of a key have one description.
func same(a, b tier.Object) bool { return a.Size == b.Size && bytes.Equal(a.Note, b.Note) }

// store stores a value that is not in memory.
func (v *Values) store(o tier.Object, body io.Reader) error {
	if err := v.reserve(o, func(b []byte) error { return readAll(body, b) }); err != nil {
		return err
	}
	return v.commit(o.Key)
}

// reserve reserves room and fills it. After an error there is no reservation.
func (v *Values) reserve(o tier.Object, fill func(b []byte) error) error {
	p := v.o.Holder.Reserve([]tier.Object{o})[0]
	if p.Err != nil {
		return p.Err
	}
	var err error
	if held := v.o.Holder.While(func() { err = fill(p.Bytes) }); held != nil {
		err = held
	}
	if err != nil {
		v.o.Holder.Abort([]tier.Key{o.Key})
	}
	return err
}

// commit publishes what was reserved, and pins it no longer.
func (v *Values) commit(k tier.Key) error {
	keys := []tier.Key{k}
	err := v.o.Holder.Commit(keys)[0]
	if err == nil {
		v.o.Holder.Unpin(keys)
	} else {
		v.o.Holder.Abort(keys)
	}
	return err
}

// readAll fills b.
func readAll(body io.Reader, b []byte) error {
	_, err := io.ReadFull(body, b)
	if errors.Is(err, io.EOF) && len(b) > 0 {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// pieces are memory to compare with.
var pieces = sync.Pool{New: func() any { return new([64 << 10]byte) }}

// compare reads a value that is pinned in memory under its key with the same description, and replaces that if its
// bytes differ. Nothing stays pinned.
func (v *Values) compare(ctx context.Context, p tier.Placed, o tier.Object, body io.Reader) (err error) {
	defer v.Unpin(o.Key) // a second time is fine
	if !same(p.Object, o) {
		return fmt.Errorf("values: somebody else stores value %v: %w", o.Key, tier.ErrPending)
	}
	piece := pieces.Get().(*[64 << 10]byte)
	defer pieces.Put(piece)
	equal, more := 0, []byte(nil) // so many bytes are equal, and these come behind them
	held := v.o.Holder.While(func() {
		for equal < len(p.Bytes) && err == nil {
			more = piece[:min(len(piece), len(p.Bytes)-equal)]
			if err = readAll(body, more); err != nil || !bytes.Equal(more, p.Bytes[equal:equal+len(more)]) {
				return
			}
			equal += len(more)
		}
	})
	if err = errors.Join(err, held); err != nil || equal == len(p.Bytes) {
		return err
	}
	return v.replace(ctx, o, p.Bytes[:equal], more, body)
}

// replace stores other bytes under a key: head, of the old ones, which the caller pins, then more, then body. They are
// all there before the old ones are deleted, so for a moment there is room for two.
//
// See docs/decisions.md, "A value of lm:// is replaced by deleting it".
func (v *Values) replace(ctx context.Context, o tier.Object, head, more []byte, body io.Reader) error {
	other := o
	other.Name = "replacing " + v.o.ID // it is never committed, so nobody finds it
	var whole []byte
	err := v.reserve(other, func(b []byte) error {
		n := copy(b, head)
		n += copy(b[n:], more)
		whole = b
		return readAll(body, b[n:])
	})
	if err != nil {
		return err
	}
	defer v.o.Holder.Abort([]tier.Key{other.Key})
	v.Unpin(o.Key)
	if err := v.makeWay(ctx, o.Key); err != nil {
		return err
	}
	return v.store(o, bytes.NewReader(whole))
}
