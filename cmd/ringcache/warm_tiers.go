package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/ringcache/ringcache/daemon"
	"github.com/ringcache/ringcache/encoder/warm"
)

// warmStatTime is the longest wait for the daemon, which answers without input and output.
const warmStatTime = 10 * time.Second

// socket returns the socket of the daemon, as ringcache serve status finds it. It is empty if nobody names one and
// none is at the usual place: an engine may share the outputs by other means.
func (c warmCommand) socket() (string, error) {
	config, err := configOf(c.Socket, c.Config)
	if err != nil {
		return "", err
	}
	usual, err := daemon.Sources{}.Load()
	if err != nil {
		return "", err
	}
	if c.Socket == "" && config.Socket == usual.Socket {
		if _, err := os.Stat(usual.Socket); errors.Is(err, fs.ErrNotExist) {
			return "", nil
		}
	}
	return config.Socket, nil
}

// tiers asks the daemon for its state. It returns nil if no socket is given.
func (c warmCommand) tiers(ctx context.Context) (*status, error) {
	if c.Socket == "" {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, warmStatTime)
	defer cancel()
	s, err := askStatus(ctx, c.Socket, "ringcache warm")
	if err != nil {
		return nil, explainStatus(c.Socket, err)
	}
	return s, nil
}

// first asks the daemon before anything is sent, so that a wrong socket is noticed then. A daemon that is
// just being started is waited for.
func (c warmCommand) first(ctx context.Context) (*status, error) {
	end := time.Now().Add(min(c.Patience, warmStatTime))
	for {
		s, err := c.tiers(ctx)
		starting := errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
		if !starting || time.Now().After(end) {
			return s, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(warmStatTime / 100):
		}
	}
}

// written asks the daemon until its lower tiers have everything, as long as what they lack gets less: only then do other
// hosts find it. A tier that is away, or others who store without end, are waited for no longer than a daemon is.
func (c warmCommand) written(ctx context.Context) (*status, error) {
	least, patience := 0, min(c.Patience, warmStatTime)
	for end := time.Now().Add(patience); ; {
		s, err := c.tiers(context.WithoutCancel(ctx))
		if err != nil || s == nil || s.Backlog == 0 {
			return s, err
		}
		if least == 0 || s.Backlog < least {
			least, end = s.Backlog, time.Now().Add(patience)
		}
		if ctx.Err() != nil || time.Now().After(end) {
			return s, nil
		}
		select {
		case <-ctx.Done(): // once more, for what is shown
		case <-time.After(patience / 100):
		}
	}
}

// show prints what the tiers have, and how much of it is new. That they have nothing although images were
// sent is an error.
func (c warmCommand) show(ctx context.Context, to io.Writer, before *status, result warm.Result) error {
	after, err := c.written(ctx)
	if err != nil || after == nil {
		return err
	}
	objects := map[string]int64{}
	for _, l := range before.Levels {
		objects[l.Name] = l.Objects
	}
	fmt.Fprintln(to)
	w := newTable(to, "TIER", "STATE", "OBJECTS", "NEW", "BYTES", "CAPACITY", "BACKLOG")
	empty, old := true, true
	for _, l := range after.Levels {
		added := "?"
		if n, known := objects[l.Name]; known && n >= 0 && l.Objects >= 0 {
			added = fmt.Sprintf("%+d", l.Objects-n)
			old = old && l.Objects == n
		}
		empty = empty && l.Objects <= 0
		w.row(printable(l.Name), l.state(), count(l.Objects), added, size(l.Bytes), l.capacity(), l.Backlog)
	}
	if err := w.flush(); err != nil {
		return err
	}
	switch {
	case after.Backlog > 0:
		_, err = fmt.Fprintf(to, "%d objects wait to be written to lower tiers: until then, no other host finds them\n", after.Backlog)
	case result.Sent > 0 && empty:
		err = fmt.Errorf("images were sent, and the daemon at %s has nothing: does the engine run with the connector, and with this socket?", c.Socket)
	case result.Sent > 0 && old && result.Counted && result.Encoded > 0:
		_, err = fmt.Fprintf(to, "nothing is new, although the engine has encoded %d outputs: does it have this socket, and is it an ec_consumer, which stores nothing? "+
			"Or the tiers are full, and as many objects were evicted\n", result.Encoded)
	case result.Sent > 0 && old && !result.Counted:
		_, err = fmt.Fprintln(to, "nothing is new: the outputs were there, or the engine has another socket, or it had the images in its own caches and did not store them again")
	}
	return err
}
