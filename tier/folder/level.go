package folder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/internal/remote"
	"github.com/ringcache/ringcache/tier/internal/tree"
)

// Level is a folder that several processes share. It implements [tier.Level].
type Level struct {
	path    string
	name    string // of this level among those of the root, in names of files
	o       Options
	breaker remote.Breaker
	slots   chan struct{}
	probes  chan struct{} // as slots, for calls that ask whether the file system is back
	clock   clock
	writing claims
	evictor evictor

	files            atomic.Uint64 // temporary files so far
	inFiles          atomic.Int64  // goroutines in a file call
	evicted, corrupt atomic.Int64

	background context.Context // of the goroutines of start; ends with the level
	cancel     context.CancelFunc

	mu     sync.Mutex
	tree   *tree.Tree // nil until the folder was reached
	info   fs.FileInfo
	closed bool
	calls  sync.WaitGroup // of calls, and goroutines of start; Add is guarded by mu
}

var _ tier.Level = (*Level)(nil)

// Open opens a folder, which must be there: made here, it would be one of this host alone if a mount is missing. It makes
// the folder a root if it is none.
//
// A file system that does not answer is no error: calls fail with tier.ErrUnavailable until it does. [Level.Ping] reports
// that. Open refuses, as an fs.ErrInvalid, a root of another layout or space; as an fs.ErrExist, a folder with files that
// is no root, if its layout is not that of other programs; and as an errors.ErrUnsupported, a root of package disk, and
// systems other than Linux.
func Open(ctx context.Context, path string, o Options) (*Level, error) {
	l, err := makeLevel(path, o)
	if err != nil {
		return nil, err
	}
	err = l.refresh(ctx)
	switch {
	case err == nil:
	case ctx.Err() == nil && (errors.Is(err, errHangs) || isAway(err)): // the probe goes on
	default:
		return nil, errors.Join(explain(path, "opening the root", err), l.Close())
	}
	l.start(l.maintain)
	return l, nil
}

func makeLevel(path string, o Options) (*Level, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if !supported {
		return nil, fmt.Errorf("folder: roots that several hosts share are for Linux: %w", errors.ErrUnsupported)
	}
	l := &Level{path: path, name: randomName(), o: o.withDefaults()}
	l.evictor.wake, l.evictor.lease.l = make(chan struct{}, 1), l
	l.slots = make(chan struct{}, l.o.Workers)
	// More than one: a probe that hangs in a mount that was given up must not hide the mount that took its place.
	l.probes = make(chan struct{}, 4)
	l.background, l.cancel = context.WithCancel(context.Background())
	l.breaker = remote.Breaker{
		Failures: 1, Retry: l.o.Retry, Start: l.start, Ping: l.refresh,
		Explain: func(err error) error { return explain(path, "asking the file system", err) },
	}
	return l, nil
}

// Ping asks the file system for an answer, and reports why there is none, as a tier.ErrUnavailable.
func (l *Level) Ping(ctx context.Context) error {
	leave, err := l.enter()
	if err != nil {
		return err
	}
	defer leave()
	return explain(l.path, "asking the file system", l.refresh(ctx))
}

// Check reports why Open would refuse a folder, and changes nothing that stays.
func Check(ctx context.Context, path string, o Options) error {
	l, err := makeLevel(path, o)
	if err != nil {
		return err
	}
	o1, err := l.beginIn(ctx, l.probes, nil)
	if err != nil {
		return err
	}
	err = o1.do(0, func() error {
		t, _, err := openRoot(path, &l.o, look)
		if err != nil {
			return err
		}
		return t.Close()
	})
	o1.end()
	return errors.Join(explain(path, "opening the root", err), l.Close())
}

// refresh opens the folder anew, so that a mount that took the place of another one is found, and writes a file, which
// shows that the server answers, and what its clock is.
func (l *Level) refresh(ctx context.Context) error {
	o, err := l.beginIn(ctx, l.probes, nil)
	if err != nil {
		return err
	}
	defer o.end()
	how := keep
	if l.currentTree() == nil {
		how = prepare
	}
	var info fs.FileInfo
	var modified time.Time
	temp := l.tempName()
	err = o.do(0, func() (err error) {
		if o.t, info, err = openRoot(l.path, &l.o, how); err != nil {
			return err
		}
		if modified, err = writeProbe(o.t, temp); err == nil {
			return nil
		}
		if how != prepare && !isAway(err) && !isStale(err) { // such as a full file system, or one that is only read
			modified = time.Time{}
			return nil
		}
		return errors.Join(err, o.t.Close())
	})
	if err != nil {
		return err
	}
	if !modified.IsZero() {
		l.clock.set(modified)
	}
	up := l.breaker.Down() == nil
	l.mu.Lock()
	defer l.mu.Unlock()
	if up && l.tree != nil && os.SameFile(l.info, info) {
		t := o.t
		l.goFile(func() { _ = t.Close() })
		return nil
	}
	// Ops may still use the old one, which the runtime closes when none does.
	l.tree, l.info = o.t, info
	return nil
}

// writeProbe writes a file, and returns the time that it got.
func writeProbe(t *tree.Tree, temp string) (time.Time, error) {
	f, err := t.Root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return time.Time{}, err
	}
	_, err = f.Write([]byte{0})
	if err = errors.Join(err, f.Close()); err != nil {
		return time.Time{}, errors.Join(err, t.Root.Remove(temp))
	}
	info, err := t.Stat(temp)
	return info.Modified, errors.Join(err, t.Root.Remove(temp))
}

// tempName returns a name that no other process takes.
func (l *Level) tempName() string {
	return fmt.Sprintf("%s/%s-%x", tree.TempDir, l.name, l.files.Add(1))
}

// Name is "folder".
func (l *Level) Name() string { return "folder" }

// Usage reports what this level has evicted, and the damage that it has found. The number of objects and their bytes are
// -1: other hosts change them all the time, and to count them the folder has to be searched.
func (l *Level) Usage() tier.Usage {
	return tier.Usage{Objects: -1, Bytes: -1, Capacity: l.o.Capacity, Evicted: l.evicted.Load(), Corrupt: l.corrupt.Load()}
}

// Close ends the level and waits for its calls. The files stay. It does not wait for calls of a file system that hang, and
// returns a tier.ErrUnavailable that has their number: their goroutines end when the file system answers, or with the process.
func (l *Level) Close() error {
	l.mu.Lock()
	again := l.closed
	l.closed = true
	l.mu.Unlock()
	down := l.breaker.Down() != nil
	l.cancel()
	l.calls.Wait()
	if again {
		return nil
	}
	l.mu.Lock()
	t := l.tree
	l.tree = nil
	l.mu.Unlock()
	if t != nil {
		l.goFile(func() { _ = t.Close() })
	}
	// What hangs was abandoned after the time limit. What was abandoned by its caller alone ends soon.
	patience := time.NewTimer(l.o.Timeout)
	if down {
		patience.Reset(0)
	}
	defer patience.Stop()
	for pause := 50 * time.Microsecond; l.inFiles.Load() > 0; pause = min(2*pause, 10*time.Millisecond) {
		select {
		case <-time.After(pause):
		case <-patience.C:
			if n := l.inFiles.Load(); n > 0 {
				return fmt.Errorf("folder: %s: %w: %d calls of the file system hang, and were given up", l.path, tier.ErrUnavailable, n)
			}
		}
	}
	return nil
}

// enter begins a call, which leave ends.
func (l *Level) enter() (leave func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, l.errClosed()
	}
	l.calls.Add(1)
	return l.calls.Done, nil
}

func (l *Level) errClosed() error {
	return fmt.Errorf("folder: %s: the level is closed: %w", l.path, fs.ErrClosed)
}

// start runs a goroutine that Close waits for.
func (l *Level) start(fn func(ctx context.Context)) bool {
	leave, err := l.enter()
	if err != nil {
		return false
	}
	go func() {
		defer leave()
		fn(l.background)
	}()
	return true
}

// currentTree returns the folder; nil until it was reached, and after Close.
func (l *Level) currentTree() *tree.Tree {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tree
}

// usable returns the folder, or why there is none.
func (l *Level) usable() (*tree.Tree, error) {
	l.mu.Lock()
	t, closed := l.tree, l.closed
	l.mu.Unlock()
	switch {
	case t == nil && closed:
		return nil, l.errClosed()
	case t == nil:
		return nil, cmp.Or(l.breaker.Down(), errHangs)
	}
	return t, l.breaker.Down()
}
