package folder

import (
	"cmp"
	"container/heap"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/tier/disk"
	"github.com/ringcache/ringcache/tier/internal/tree"
)

// Eviction has two steps, so that an object which another host renews meanwhile is not lost, and a kill loses none:
//
//  1. Files that nobody has used for MinAge are moved below .ringcache/leaving, at the same path, the oldest first.
//     Each is asked for its age once more before that, past all caches.
//  2. After a while (Options.grace), in which the folders that other hosts have cached get old, each file there is asked
//     for its age again. It is removed, or put back if somebody has touched it.
//
// A kill leaves files below leaving. The next evictor begins with step 2.

// reportPath is what the last evictor found, so that not every level searches the root.
const reportPath = tree.OwnDir + "/searched"

// report is the content of that file.
type report struct {
	Number  string `json:"number"` // of this search, in no order
	Objects int64  `json:"objects"`
	Bytes   int64  `json:"bytes"`
}

// evictor is the state of a level's goroutine that looks after the root.
type evictor struct {
	wake   chan struct{}
	isFull atomic.Bool // the file system has no room
	lease  lease
	seen   string // the last report
}

// full has objects evicted for a file system that has no room.
func (e *evictor) full() {
	e.isFull.Store(true)
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// maintain looks after the root until the level ends: every minute, and when there is no room.
func (l *Level) maintain(ctx context.Context) {
	// Levels that began at the same time do not search at the same time.
	pause := time.Duration(rand.Int64N(int64(l.o.interval)))
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		case <-l.evictor.wake:
		}
		pause = l.o.interval*9/10 + time.Duration(rand.Int64N(int64(l.o.interval)/5+1))
		err := l.refresh(ctx)
		switch {
		case isAway(err), errors.Is(err, errHangs):
			l.breaker.Fail(err)
			continue
		case err == nil:
			err = l.cleanUp(ctx)
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, errLeaseLost) && l.breaker.Down() == nil {
			l.o.Logger.Warn("folder: the folder could not be cleaned up, and the next try is in a minute", "folder", l.path, "error", err)
		}
	}
}

// cleanUp does what one level at a time does, unless another one does it or has just done it.
func (l *Level) cleanUp(ctx context.Context) error {
	e := &l.evictor
	last, err := l.readReport(ctx)
	if err != nil {
		return err
	}
	if last != e.seen { // another level has searched since this one looked last
		e.seen = last
		e.isFull.Store(false) // if it still is, the next Put finds that
		return nil
	}
	full := e.isFull.Load()
	taken, err := e.lease.take(ctx)
	if err != nil || !taken {
		return err
	}
	err = l.cleanUpAlone(ctx, full)
	if err == nil {
		e.isFull.CompareAndSwap(true, false)
	}
	return errors.Join(err, e.lease.release(ctx))
}

// cleanUpAlone is cleanUp with the lease.
func (l *Level) cleanUpAlone(ctx context.Context, full bool) error {
	left, err := l.endLeaving(ctx)
	if err != nil {
		return err
	}
	if err := l.sweep(ctx); err != nil {
		return err
	}
	r := report{Number: randomName(), Objects: -1, Bytes: -1}
	if l.o.Capacity > 0 || full {
		found, err := l.search(ctx)
		if err != nil {
			return err
		}
		r.Objects, r.Bytes = found.objects, found.bytes
		// A little more than is needed goes, so that the next objects have room.
		target := l.o.Capacity - l.o.Capacity/20
		switch {
		case full:
			target = found.bytes - found.bytes/10
		case found.bytes <= l.o.Capacity:
			target = found.bytes
		}
		if err := l.moveAway(ctx, found, target); err != nil {
			return err
		}
		gone, err := l.endLeaving(ctx)
		if err != nil {
			return err
		}
		left += gone
	}
	if left > 0 {
		l.o.Logger.Info("folder: objects were evicted", "folder", l.path, "objects", left)
	}
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	l.evictor.seen = string(b)
	return l.file(ctx, func(t *tree.Tree) error { return replace(t, b, l.tempName(), reportPath) })
}

func (l *Level) readReport(ctx context.Context) (last string, err error) {
	var read string
	err = l.file(ctx, func(t *tree.Tree) (err error) {
		if read, err = readSmall(t, reportPath); isAbsent(err) {
			return nil
		}
		return err
	})
	if err != nil {
		return "", err
	}
	return read, nil
}

// victim is a file that may go.
type victim struct {
	path     string
	modified time.Time
	size     int64
}

// victims has the oldest files that a search has found, the newest of them first: a heap, so that its memory is bounded.
type victims []victim

func (v victims) Len() int           { return len(v) }
func (v victims) Less(i, j int) bool { return v[i].modified.After(v[j].modified) }
func (v victims) Swap(i, j int)      { v[i], v[j] = v[j], v[i] }
func (v *victims) Push(x any)        { *v = append(*v, x.(victim)) }
func (v *victims) Pop() any {
	last := (*v)[len(*v)-1]
	*v = (*v)[:len(*v)-1]
	return last
}

// maxVictims bounds the files that are evicted in one pass: some 10 MB of names.
const maxVictims = 1 << 16

// found is what a search has found.
type found struct {
	objects, bytes int64
	old            victims
}

// search finds the files of objects, and the oldest of those that may go.
func (l *Level) search(ctx context.Context) (*found, error) {
	all := &found{}
	err := l.walk(ctx, ".", func(paths []string) error {
		infos := make([]tree.Fresh, len(paths))
		err := l.fileCalls(ctx, len(paths), func(t *tree.Tree) error {
			for i, p := range paths {
				// The times that the mount has cached do: what is to go is asked for its age again.
				info, err := t.Root.Lstat(p)
				if err == nil && info.Mode().IsRegular() {
					infos[i] = freshOf(info)
				} else if err != nil && !isAbsent(err) {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		for i, info := range infos {
			if info.Modified.IsZero() {
				continue
			}
			all.objects++
			all.bytes += info.Size
			if l.clock.age(info.Modified) < l.o.MinAge {
				continue
			}
			heap.Push(&all.old, victim{paths[i], info.Modified, info.Size})
			if len(all.old) > maxVictims {
				heap.Pop(&all.old)
			}
		}
		return l.evictor.lease.renew(ctx)
	})
	return all, err
}

// moveAway is the first step of an eviction.
func (l *Level) moveAway(ctx context.Context, all *found, target int64) error {
	slices.SortFunc(all.old, func(a, b victim) int { return cmp.Or(a.modified.Compare(b.modified), cmp.Compare(a.path, b.path)) })
	left := all.bytes
	for _, v := range all.old {
		if left <= target {
			return nil
		}
		var moved bool
		err := l.file(ctx, func(t *tree.Tree) error {
			now, err := t.Stat(v.path)
			if err != nil || l.clock.age(now.Modified) < l.o.MinAge {
				return ignoreAbsent(err)
			}
			err = t.Rename(v.path, tree.LeavingDir+"/"+v.path)
			moved = err == nil
			failpoint.Hit("folder.leaving")
			return ignoreAbsent(err)
		})
		if err != nil {
			return err
		}
		if moved {
			left -= v.size
		}
		if err := l.evictor.lease.renew(ctx); err != nil {
			return err
		}
	}
	return nil
}

// endLeaving is the second step of an eviction, for all that is below leaving. It returns how many objects have gone.
func (l *Level) endLeaving(ctx context.Context) (gone int64, err error) {
	waited := false
	err = l.walk(ctx, tree.LeavingDir, func(paths []string) error {
		if !waited {
			waited = true
			select {
			case <-time.After(l.o.grace):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		var removed int64
		err := l.fileCalls(ctx, len(paths), func(t *tree.Tree) error {
			for _, p := range paths {
				now, err := t.Stat(p)
				switch {
				case err != nil:
				case l.clock.age(now.Modified) < l.o.MinAge: // somebody has renewed it
					err = link(t, p, strings.TrimPrefix(p, tree.LeavingDir+"/"))
					if errors.Is(err, fs.ErrExist) {
						err = t.Root.Remove(p) // there is a newer one
					}
					failpoint.Hit("folder.returned")
				default:
					if err = t.Root.Remove(p); err == nil {
						removed++
					}
					failpoint.Hit("folder.removed")
				}
				if err != nil && !isAbsent(err) {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		gone += removed
		l.evicted.Add(removed)
		return l.evictor.lease.renew(ctx)
	})
	return gone, err
}

// sweep removes temporary files of processes that are dead: those that nobody has written to for long.
func (l *Level) sweep(ctx context.Context) error {
	return l.walk(ctx, tree.TempDir, func(paths []string) error {
		return l.fileCalls(ctx, len(paths), func(t *tree.Tree) error {
			for _, p := range paths {
				now, err := t.Stat(p)
				if err == nil && l.clock.age(now.Modified) >= l.o.tempAge {
					err = t.Root.Remove(p)
					failpoint.Hit("folder.swept")
				}
				if err != nil && !isAbsent(err) {
					return err
				}
			}
			return nil
		})
	})
}

const (
	// maxDepth bounds the folders in folders that a walk enters.
	maxDepth = 16
	// batchNames is how many names of a folder are read at a time.
	batchNames = 256
)

// walk calls files with the paths of regular files below a folder, some at a time: those where the layout has objects, or
// all in a folder of the level's own. Files that come or go meanwhile may be left out, and no path is there twice.
func (l *Level) walk(ctx context.Context, dir string, files func(paths []string) error) error {
	return l.walkFrom(ctx, dir, 0, files)
}

func (l *Level) walkFrom(ctx context.Context, dir string, depth int, files func(paths []string) error) error {
	folders, err := l.readFolder(ctx, dir, files)
	for i := 0; err == nil && i < len(folders) && depth < maxDepth; i++ {
		err = l.walkFrom(ctx, folders[i], depth+1, files)
	}
	return err
}

// readFolder reads one folder, and returns the folders in it.
func (l *Level) readFolder(ctx context.Context, dir string, files func(paths []string) error) (folders []string, err error) {
	o, err := l.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { o.end() }()
	seen := map[string]struct{}{} // a server may answer a name twice when the folder changes
	for first := true; ; first = false {
		var entries []fs.DirEntry
		var last bool
		err := o.do(1<<20, func() (err error) {
			if first {
				if o.file, err = o.t.Root.Open(dir); err != nil {
					return err
				}
			}
			entries, err = o.file.ReadDir(batchNames)
			last = errors.Is(err, io.EOF)
			return noEOF(err)
		})
		if err != nil {
			if o.abandoned == nil && isAbsent(err) && dir != "." { // it was removed meanwhile
				return folders, nil
			}
			return nil, err
		}
		var paths []string
		for _, e := range entries {
			p := path.Join(dir, e.Name())
			if _, twice := seen[p]; twice || strings.HasPrefix(e.Name(), ".nfs") || isOwn(p) && !isOwn(dir) {
				continue // a file that a client of NFS has removed and still has open
			}
			seen[p] = struct{}{}
			switch {
			case e.IsDir():
				folders = append(folders, p)
			case e.Type().IsRegular() && (isOwn(dir) || l.layoutHas(p)):
				paths = append(paths, p)
			}
		}
		if len(paths) > 0 {
			if err := files(paths); err != nil {
				return nil, err
			}
		}
		if last {
			return folders, nil
		}
	}
}

// layoutHas reports whether a path could be that of an object. An empty reader is enough, since layouts decide that by the
// path alone.
func (l *Level) layoutHas(p string) bool {
	_, err := l.o.Layout.ParseHead(p, strings.NewReader(""), 0)
	return !errors.Is(err, disk.ErrPath)
}

func ignoreAbsent(err error) error {
	if err != nil && isAbsent(err) {
		return nil
	}
	return err
}
