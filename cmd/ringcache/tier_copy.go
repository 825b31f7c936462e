package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/ringcache/ringcache/internal/sizes"
	"github.com/ringcache/ringcache/internal/terminal"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/disk"
)

type tierCopy struct {
	From  string `arg:"" help:"Where the objects are: a folder, shm:NAME, or the URL of a Redis."`
	To    string `arg:"" help:"Where they are copied to. A folder that is not there is made."`
	Space string `help:"Only objects of this space."`
	Dir   string `help:"Folder of shared memory, /dev/shm if empty."`
	JSON  bool   `name:"json" help:"Print one JSON object for each object that was not copied, and one for the sum."`
}

// Help is the end of ringcache tier copy --help.
func (tierCopy) Help() string {
	return `What TO has already, with the same size, is left as it is. What is copied is read back at the end. A run that
was stopped is gone on with by the same command.

FROM may be served by another process meanwhile, TO must not be, unless it is a Redis: end the daemon, or let
it fetch the objects from there.

The exit status is 0 if TO has all objects, and 1 if not, also if FROM has files that are damaged or can't be
read.`
}

// Run copies.
func (c tierCopy) Run() (err error) {
	ctx, stop := interruptible()
	defer stop()
	from, space, err := levelArgs{Level: c.From, Space: c.Space, Dir: c.Dir}.open(ctx, false, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	to, _, err := levelArgs{Level: c.To, Dir: c.Dir}.open(ctx, true, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	return c.copy(ctx, to, from, space)
}

func (c tierCopy) copy(ctx context.Context, to, from tier.Level, space string) error {
	var sum struct {
		Copied int64 `json:"copied"`
		Bytes  int64 `json:"bytes"` // of the copied objects
		There  int64 `json:"there"` // in TO already
		Failed int64 `json:"failed"`
	}
	enc := jsonLines(os.Stdout)
	view := newProgress("copying")
	err := tier.Copy(ctx, to, from, space, view.show, func(o tier.Copied) error {
		switch {
		case o.Err == nil && o.There:
			sum.There++
		case o.Err == nil:
			sum.Copied, sum.Bytes = sum.Copied+1, sum.Bytes+o.Object.Size
		case c.JSON:
			sum.Failed++
			return enc.Encode(describe(o.Object, o.Err))
		default:
			sum.Failed++
			view.clear()
			_, err := fmt.Printf("%s: %s\n", terminal.Lines(o.Object.Key.String()), terminal.Lines(o.Err.Error()))
			return err
		}
		return nil
	})
	view.end()
	if c.JSON {
		err = errors.Join(err, enc.Encode(sum))
	} else {
		fmt.Printf("%d objects copied (%s), %d there already, %d failed\n", sum.Copied, sizes.Text(sum.Bytes),
			sum.There, sum.Failed)
	}
	switch {
	case err != nil:
		return fmt.Errorf("the copy ended early, run it again to go on: %w", err)
	case sum.Failed > 0:
		return fmt.Errorf("%s lacks %d objects of %s", c.To, sum.Failed, c.From)
	}
	if folder, ok := from.(*disk.Level); ok {
		if s := folder.Indexed(); s.Damaged+s.Unreadable > 0 {
			return fmt.Errorf("%d files of %s were not copied: %d are damaged, %d can't be read by this user; `ringcache tier verify %[2]s` names them",
				s.Damaged+s.Unreadable, c.From, s.Damaged, s.Unreadable)
		}
	}
	return nil
}
