package tier

import (
	"context"
	"errors"
	"io"
)

// verifyBatch bounds the objects that Verify asks for at a time.
const verifyBatch = 16

// Verify reads every object of a space, of all spaces if space is empty, and calls report with each one and
// what [Level.Get] answered: nil, or ErrNotFound, with ErrCorrupt of what was damaged. An object that went
// between the listing and the reading is left out. Verify ends with the first error of report, of the
// listing, or of ctx.
func Verify(ctx context.Context, level Level, space string, report func(Object, error) error) error {
	var gets []Get
	var listed []Object
	flush := func() error {
		level.Get(ctx, gets)
		for i, g := range gets {
			if errors.Is(g.Err, ErrNotFound) && !errors.Is(g.Err, ErrCorrupt) {
				continue // it went meanwhile
			}
			if err := report(listed[i], g.Err); err != nil {
				return err
			}
		}
		gets, listed = gets[:0], listed[:0]
		return ctx.Err()
	}
	for o, err := range level.List(ctx, space) {
		if err != nil {
			return err
		}
		gets = append(gets, Get{Key: o.Key, To: io.Discard, NoUse: true})
		listed = append(listed, o)
		if len(gets) == verifyBatch {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}
