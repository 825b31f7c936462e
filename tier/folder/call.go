package folder

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/internal/tree"
)

// op is the work on one object: file calls, one at a time. Each runs in a goroutine of its own, since a call of a file
// system that hangs does not end with a context. An op that waits for such a call no longer abandons it: from then on
// everything in the op belongs to the call, which lets go of it when it returns. So a file call never touches memory of
// the caller: bytes go through a block.
//
// An op has one of Options.Workers slots from its begin to its end, or until the abandoned call returns: that many calls
// can hang at a time, and no more.
type op struct {
	l     *Level
	ctx   context.Context
	slots chan struct{}

	t         *tree.Tree
	file      *os.File
	temp      string // is removed at the end
	b         *[blockBytes]byte
	used      bool // touch the file at the end
	abandoned error
}

// blockBytes is how much is read or written, and summed, at a time. A block stays in the processor's cache for the checksum
// and the copy.
const blockBytes = 256 << 10

var blocks = sync.Pool{New: func() any { return new([blockBytes]byte) }}

// errHangs is a file call that took longer than its limit.
var errHangs = fmt.Errorf("%w: the file system does not answer: see to its server, and to the mount", tier.ErrUnavailable)

// begin begins an op, unless the file system is away.
func (l *Level) begin(ctx context.Context) (*op, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	t, err := l.usable()
	if err != nil {
		return nil, err
	}
	o, err := l.beginIn(ctx, l.slots, t)
	if err != nil {
		return nil, err
	}
	o.b = blocks.Get().(*[blockBytes]byte)
	return o, nil
}

// beginIn waits for a slot, which may be taken by a call that hangs.
func (l *Level) beginIn(ctx context.Context, slots chan struct{}, t *tree.Tree) (*op, error) {
	o := &op{l: l, ctx: ctx, slots: slots, t: t}
	select {
	case slots <- struct{}{}:
		return o, nil
	default:
	}
	timer := time.NewTimer(l.o.Timeout)
	defer timer.Stop()
	select {
	case slots <- struct{}{}:
		return o, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-timer.C:
		l.breaker.Suspect()
		return nil, errHangs
	}
}

// States of a file call.
const (
	running int32 = iota
	returned
	abandoned
)

// do makes a file call that moves so many bytes, and waits for it: until the context ends, or its time limit. Then the op
// is over, and has given everything to the call.
func (o *op) do(bytes int64, call func() error) error {
	if o.abandoned != nil {
		return o.abandoned
	}
	var state atomic.Int32
	done := make(chan error, 1)
	o.l.goFile(func() {
		err := call()
		if state.CompareAndSwap(running, returned) {
			done <- err
		} else {
			o.letGo()
		}
	})
	timer := time.NewTimer(o.l.o.limit(bytes))
	defer timer.Stop()
	var cause error
	select {
	case err := <-done:
		return o.answered(err)
	case <-o.ctx.Done():
		cause = o.ctx.Err()
	case <-timer.C:
		cause = errHangs
	}
	if !state.CompareAndSwap(running, abandoned) {
		return o.answered(<-done)
	}
	o.abandoned = cause
	switch {
	case errors.Is(cause, errHangs):
		o.l.breaker.Fail(cause)
	case errors.Is(cause, context.DeadlineExceeded):
		o.l.breaker.Suspect()
	}
	return cause
}

// answered notes what the answer of a file call means for the level.
func (o *op) answered(err error) error {
	switch {
	case isAway(err):
		o.l.breaker.Fail(err)
	default:
		o.l.breaker.Succeed()
	}
	return err
}

// end lets go of what the op has, without waiting for that: closing a file may hang, too.
func (o *op) end() {
	if o.abandoned != nil {
		return
	}
	if o.file == nil && o.temp == "" && !o.used {
		o.letGo()
		return
	}
	o.l.goFile(o.letGo)
}

// letGo ends the op. It makes file calls.
func (o *op) letGo() {
	if o.file != nil {
		if o.used {
			_ = tree.Touch(o.file) // of a mount that is only read, or another user's file
		}
		_ = o.file.Close()
	}
	if o.temp != "" {
		_ = o.t.Root.Remove(o.temp) // if that fails, an evictor removes it later
	}
	if o.b != nil {
		blocks.Put(o.b)
	}
	<-o.slots
}

// goFile runs a file call. Close waits for those that do not hang.
func (l *Level) goFile(call func()) {
	l.inFiles.Add(1)
	go func() {
		defer l.inFiles.Add(-1)
		call()
	}()
}
