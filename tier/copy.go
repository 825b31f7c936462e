package tier

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
)

const (
	copyBatch = 64      // objects of a copy that are in hand at a time
	copyBytes = 8 << 20 // bytes of those, or of a single object
)

// Copied is what Copy did with an object.
type Copied struct {
	Object Object
	// There reports that the level had it already, with the same size.
	There bool
	// Err is why the level has not got it.
	Err error
}

// Copy copies the objects of a space, of all spaces if space is empty, from a level to another one, parents
// first. What the other level has already, with the same size, is left as it is. What was copied is read back
// at the end: it is not copied if it is damaged, or went for the room of what came after it.
//
// progress, if not nil, is called with the steps that are done, of all: two for each object. report is called
// once for each object that was listed. An object that went between listing and reading is reported as
// ErrNotFound. If the listing has an error, such as of a file that can't be read, what it has is copied, and
// the error comes at the end. Copy ends early with the first error of report, or of ctx, and with
// ErrUnavailable when a level did not answer for 64 objects in a row: what was copied until then stays, and
// another Copy goes on with the rest.
func Copy(
	ctx context.Context, to, from Level, space string, progress func(done, all int), report func(Copied) error,
) error {
	var listed []Placed
	var unlisted error
	for o, err := range from.List(ctx, space) {
		if err != nil {
			unlisted = fmt.Errorf("tier: not all objects of level %s could be listed: %w", from.Name(), err)
			break
		}
		listed = append(listed, Placed{Object: o})
	}
	if progress == nil {
		progress = func(int, int) {}
	}
	c := &copying{to: to, from: from, progress: progress, report: report}
	for _, p := range parentsFirst(listed) {
		c.objects = append(c.objects, copied{object: p.Object})
	}
	if err := c.inBatches(ctx, c.copy); err != nil {
		return err
	}
	if err := c.inBatches(ctx, c.verify); err != nil {
		return err
	}
	return unlisted
}

// copying is a run of Copy.
type copying struct {
	to, from Level
	objects  []copied
	steps    int // done
	away     int // objects in a row for which a level was away
	progress func(done, all int)
	report   func(Copied) error
}

// copied is an object of a run.
type copied struct {
	object   Object
	sum      uint32 // CRC-32C of what was put
	there    bool   // before
	reported bool
}

// inBatches calls f for what was not reported yet.
func (c *copying) inBatches(ctx context.Context, f func(context.Context, []*copied) error) error {
	var batch []*copied
	var size int64
	flush := func() error {
		if err := ctx.Err(); err != nil || len(batch) == 0 {
			return err
		}
		err := f(ctx, batch)
		c.step(len(batch))
		batch, size = nil, 0
		return err
	}
	for i := range c.objects {
		o := &c.objects[i]
		if o.reported {
			c.step(1)
			continue
		}
		if len(batch) == copyBatch || len(batch) > 0 && size+o.object.Size > copyBytes {
			if err := flush(); err != nil {
				return err
			}
		}
		batch, size = append(batch, o), size+o.object.Size
	}
	return flush()
}

// step reports n more steps as done.
func (c *copying) step(n int) {
	c.steps += n
	c.progress(c.steps, 2*len(c.objects))
}

// reportObject reports an object. The error ends the run. One object that a level can't read or write now is that
// object's failure; many are the level's.
func (c *copying) reportObject(o *copied, err error) error {
	if !errors.Is(err, ErrUnavailable) {
		c.away = 0
	} else if c.away++; c.away == copyBatch {
		return err
	}
	o.reported = true
	return c.report(Copied{Object: o.object, There: o.there && err == nil, Err: err})
}

// copiedKeys returns the keys of a batch, in its order.
func copiedKeys(batch []*copied) []Key {
	keys := make([]Key, len(batch))
	for i, o := range batch {
		keys[i] = o.object.Key
	}
	return keys
}

// copy puts those that the other level lacks.
func (c *copying) copy(ctx context.Context, batch []*copied) error {
	var lacking []*copied
	var gets []Get
	for i, f := range c.to.Stat(ctx, copiedKeys(batch)) {
		o := batch[i]
		switch {
		case f.Err == nil && f.Object.Size == o.object.Size:
			o.there = true
		case f.Err == nil:
			err := fmt.Errorf("tier: object %v has %d bytes, and %d in level %s: remove one of them",
				o.object.Key, o.object.Size, f.Object.Size, c.to.Name())
			if err := c.reportObject(o, err); err != nil {
				return err
			}
		case errors.Is(f.Err, ErrUnavailable):
			if err := c.reportObject(o, f.Err); err != nil {
				return err
			}
		default:
			lacking = append(lacking, o)
			gets = append(gets, Get{Key: o.object.Key, NoUse: true})
		}
	}
	c.from.Get(ctx, gets)
	if err := ctx.Err(); err != nil { // else all would be said to have failed
		return err
	}
	var puts []Put
	var putting []*copied
	for i, g := range gets {
		if g.Err != nil {
			if err := c.reportObject(lacking[i], g.Err); err != nil {
				return err
			}
			continue
		}
		lacking[i].object, lacking[i].sum = g.Object, crc32.Checksum(g.Bytes, castagnoli)
		puts = append(puts, Put{Object: g.Object, Bytes: g.Bytes})
		putting = append(putting, lacking[i])
	}
	c.to.Put(ctx, puts)
	if err := ctx.Err(); err != nil {
		return err
	}
	for i, p := range puts {
		if p.Err == nil {
			c.away = 0
		} else if err := c.reportObject(putting[i], p.Err); err != nil {
			return err
		}
	}
	return nil
}

// verify reads what was copied, and looks whether the rest is still there.
func (c *copying) verify(ctx context.Context, batch []*copied) error {
	found := c.to.Stat(ctx, copiedKeys(batch))
	errs := make([]error, len(batch))
	var gets []Get
	var places []int
	for i, o := range batch {
		if errs[i] = found[i].Err; errs[i] == nil && !o.there {
			gets = append(gets, Get{Key: o.object.Key, To: &summing{}, NoUse: true})
			places = append(places, i)
		}
	}
	c.to.Get(ctx, gets)
	if err := ctx.Err(); err != nil {
		return err
	}
	for i, g := range gets {
		o := batch[places[i]]
		if g.Err == nil && g.To.(*summing).sum != o.sum {
			g.Err = fmt.Errorf("tier: object %v has other bytes in level %s than were copied: %w",
				o.object.Key, c.to.Name(), ErrCorrupt)
		}
		errs[places[i]] = g.Err
	}
	for i, o := range batch {
		if isPlainMiss(errs[i]) {
			errs[i] = fmt.Errorf("tier: object %v was in level %s, and is not any more: is the level too small? %w",
				o.object.Key, c.to.Name(), errs[i])
		}
		if err := c.reportObject(o, errs[i]); err != nil {
			return err
		}
	}
	return nil
}
