package kvevents

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"strings"
	"time"

	"github.com/go-zeromq/zmq4"

	"github.com/ringcache/ringcache/internal/loglimit"
	"github.com/ringcache/ringcache/internal/zmtp"
	"github.com/ringcache/ringcache/kv/directory"
)

// Source is a publisher of events.
type Source struct {
	// Endpoint is its address, tcp://HOST:PORT or ipc://PATH. With data parallelism each rank has one, and is an
	// instance of its own.
	Endpoint string
	Replay   string // its address for batches that were missed; empty if it has none
	Instance string // the name in the directory
	Model    string
	// Grace is how long it may be away before it counts as gone. 0 is 30 seconds.
	Grace  time.Duration
	Logger *slog.Logger // nil is silent
}

// Validate reports what is wrong with a source.
func (s Source) Validate() error {
	for _, e := range []string{s.Endpoint, cmp.Or(s.Replay, s.Endpoint)} {
		if _, _, err := network(e); err != nil {
			return err
		}
	}
	if s.Instance == "" {
		return invalid("%s has no instance", s.Endpoint)
	}
	return nil
}

func network(endpoint string) (kind, addr string, err error) {
	scheme, addr, _ := strings.Cut(endpoint, "://")
	kind = map[string]string{"tcp": "tcp", "ipc": "unix"}[scheme]
	if kind == "" || addr == "" || strings.Contains(addr, "*") {
		return "", "", invalid("endpoint %q is neither tcp://HOST:PORT nor ipc://PATH", endpoint)
	}
	return kind, addr, nil
}

const (
	maxMessage = 16 << 20
	patience   = 30 * time.Second // of a replay, and to greet
	retry      = time.Second
)

// follower is a source that is followed.
type follower struct {
	s     Source
	d     *directory.Directory
	odd   loglimit.Limit
	known bool              // registered
	seen  time.Time         // when there was a connection last
	next  uint64            // the number of the next batch
	last  [sha256.Size]byte // of the batch before it
	again time.Time         // when all is asked for again, after a replay that failed
}

// Follow follows a source until ctx ends.
func Follow(ctx context.Context, d *directory.Directory, s Source) error {
	if err := s.Validate(); err != nil {
		return err
	}
	s.Grace = cmp.Or(s.Grace, 30*time.Second)
	if s.Logger == nil {
		s.Logger = slog.New(slog.DiscardHandler)
	}
	f := &follower{s: s, d: d}
	for {
		err := f.connect(ctx)
		if ctx.Err() == nil {
			f.odd.Warn(s.Logger, "KV events: the publisher is away", "endpoint", s.Endpoint, "err", err)
		}
		if f.known && (ctx.Err() != nil || time.Since(f.seen) > s.Grace) {
			f.d.Deregister(f.id())
			f.known = false
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retry):
		}
	}
}

func (f *follower) id() directory.ID { return directory.ID{Instance: f.s.Instance} }

// dial connects to an endpoint, until ctx ends.
func dial(ctx context.Context, endpoint string, kind zmq4.SocketType) (c *zmtp.Conn, stop func(), err error) {
	transport, addr, err := network(endpoint)
	if err != nil {
		return nil, nil, err
	}
	raw, err := (&net.Dialer{Timeout: patience}).DialContext(ctx, transport, addr)
	if err != nil {
		return nil, nil, err
	}
	cancel := context.AfterFunc(ctx, func() { _ = raw.Close() })
	stop = func() {
		cancel()
		_ = raw.Close()
	}
	c = zmtp.New(raw, zmtp.Options{MaxMessage: maxMessage, MaxFrames: 8, SendTimeout: patience})
	if _, err := c.Greet(kind, patience); err != nil {
		stop()
		return nil, nil, err
	}
	return c, stop, nil
}

// connect follows one connection, until it ends.
func (f *follower) connect(ctx context.Context) error {
	c, stop, err := dial(ctx, f.s.Endpoint, zmq4.Sub)
	if err != nil {
		return err
	}
	defer stop()
	if err := c.Send([][]byte{{1}}); err != nil { // all topics
		return err
	}
	defer func() { f.seen = time.Now() }()
	if err := f.begin(ctx); err != nil {
		return err
	}
	for {
		frames, err := c.Receive()
		if err != nil {
			return err
		}
		number, payload, err := message(frames)
		if err != nil {
			return err
		}
		if number > f.next && f.s.Replay != "" {
			if err := f.replay(ctx, f.next, number, f.take); err != nil {
				f.failed(ctx, err)
			}
		}
		f.take(number, payload) // unless it came by the replay, too
		if f.again.After(time.Time{}) && time.Now().After(f.again) {
			return errAgain
		}
	}
}

var errAgain = errors.New("kvevents: a replay has failed, and is tried again")

// message returns what a message has: a topic, a number of 8 bytes, and a batch.
func message(frames [][]byte) (number uint64, payload []byte, err error) {
	if len(frames) != 3 || len(frames[1]) != 8 {
		return 0, nil, invalid("a message of %d frames", len(frames))
	}
	return binary.BigEndian.Uint64(frames[1]), frames[2], nil
}

// begin makes the directory know what the publisher has sent before.
func (f *follower) begin(ctx context.Context) error {
	if !f.known {
		if err := f.d.Register(directory.Worker{ID: f.id(), Lasting: true}); err != nil {
			return err
		}
		f.known, f.next = true, 0
	}
	if f.s.Replay == "" {
		f.anew() // nobody knows whether it is the same process still
		f.next = 0
		return nil
	}
	if f.again.After(time.Time{}) {
		f.next, f.again = 0, time.Time{}
	}
	if f.next == 0 {
		f.anew()
	}
	// The batch in front of the next one tells whether it is the same process.
	same, first := f.next == 0, true
	err := f.replay(ctx, max(f.next, 1)-1, math.MaxUint64, func(number uint64, payload []byte) {
		if first && f.next > 0 {
			same = number == f.next-1 && sha256.Sum256(payload) == f.last
		}
		if first = false; same {
			f.take(number, payload)
		}
	})
	if err == nil && !same { // it has begun anew, or has that batch no more
		f.anew()
		f.next = 0
		err = f.replay(ctx, 0, math.MaxUint64, f.take)
	}
	if err != nil { // what it has is not known, nor whether it is the same process
		f.anew()
		f.next = 0
		f.failed(ctx, err)
	}
	return nil
}

// failed tells that there was no replay. It is tried again some time later, from the first batch on.
func (f *follower) failed(ctx context.Context, err error) {
	if ctx.Err() == nil {
		f.odd.Warn(f.s.Logger, "KV events: no replay", "endpoint", f.s.Replay, "err", err)
	}
	f.again = time.Now().Add(patience)
	f.d.Lost(f.id())
}

// anew forgets what the instance had.
func (f *follower) anew() { f.d.Clear(f.id(), func(string) bool { return true }) }

// take applies a batch, unless it has come before. Those in front of it are lost if they have not come.
func (f *follower) take(number uint64, payload []byte) {
	if number < f.next {
		return
	}
	if number > f.next {
		f.d.Lost(f.id())
	}
	events, err := parseBatch(payload)
	if err == nil {
		err = apply(f.d, f.s, events)
	}
	if err != nil {
		f.odd.Warn(f.s.Logger, "KV events: a batch is lost", "endpoint", f.s.Endpoint, "err", err)
		f.d.Lost(f.id())
	}
	f.next, f.last = number+1, sha256.Sum256(payload)
}

// replay asks for the batches from a number on, up to and without an end.
func (f *follower) replay(ctx context.Context, from, end uint64, take func(number uint64, payload []byte)) error {
	if f.s.Replay == "" {
		return errors.New("kvevents: the publisher has no replay endpoint")
	}
	c, stop, err := dial(ctx, f.s.Replay, zmq4.Dealer)
	if err != nil {
		return err
	}
	defer stop()
	if err := c.Send([][]byte{{}, binary.BigEndian.AppendUint64(nil, from)}); err != nil {
		return err
	}
	for {
		if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		frames, err := c.Receive()
		if err != nil {
			return fmt.Errorf("replay: %w", err)
		}
		if len(frames) < 1 {
			return io.ErrUnexpectedEOF
		}
		number, payload, err := message(frames[1:])
		if err != nil || number == math.MaxUint64 {
			return err
		}
		if number < end {
			take(number, payload)
		}
	}
}
