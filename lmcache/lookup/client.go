package lookup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/go-zeromq/zmq4"

	"github.com/ringcache/ringcache/internal/loglimit"
	"github.com/ringcache/ringcache/internal/sentinel"
	"github.com/ringcache/ringcache/internal/zmtp"
	"github.com/ringcache/ringcache/kv"
)

// ClientOptions are the options of NewClient.
type ClientOptions struct {
	// Paths are the sockets of the workers: of all of them, or with MLA of the first one (lookup_server_worker_ids).
	Paths []string
	// Database hashes requests. It is nil if the workers blend (enable_blending), which get the tokens themselves.
	Database *kv.TokenDatabase
	// Timeout is how long all workers may take for an answer (lookup_timeout_ms). 0 is 3 s.
	Timeout time.Duration
	// Logger is told, once a minute, of workers that have different numbers. nil is silent.
	Logger *slog.Logger
}

const defaultTimeout = 3 * time.Second

// maxWorkers bounds the workers of an engine.
const maxWorkers = 1024

var errClosed = sentinel.New(sentinel.Closed, "lookup: the client is closed")

// A Client asks the workers of an engine. It connects when it asks, and again after a failure.
type Client struct {
	o      ClientOptions
	ctx    context.Context //nolint:containedctx // ends with Close
	end    context.CancelFunc
	differ loglimit.Limit

	asking sync.Mutex
	conns  []*zmtp.Conn // nil where there is none
}

// NewClient returns a Client.
func NewClient(o ClientOptions) (*Client, error) {
	if len(o.Paths) == 0 || len(o.Paths) > maxWorkers || slices.Contains(o.Paths, "") || o.Timeout < 0 {
		return nil, invalid(
			"client: %d workers, of which each has a path, "+
				"and %d are the most; or the timeout %s",
			len(o.Paths), maxWorkers, o.Timeout)
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Client{o: o, conns: make([]*zmtp.Conn, len(o.Paths))}
	c.ctx, c.end = context.WithCancel(context.Background())
	return c, nil
}

// Lookup returns how many tokens of a request are stored at all workers, from the first one on. tokens have
// the values of media in place; options are those of the request, a JSON object or empty. It returns at the
// timeout at the latest. After an error the request is to be computed.
func (c *Client) Lookup(ctx context.Context, id string, tokens []int64, options string) (stored int, err error) {
	r := Request{ID: id, Tokens: tokens, Options: options}
	if c.o.Database != nil {
		chunks, err := c.o.Database.Chunks(tokens, 0, nil) // tags are no part of a hash
		if err != nil {
			return 0, err
		}
		for _, chunk := range chunks {
			r.Hashes, r.Lengths = append(r.Hashes, chunk.Key.Hash), append(r.Lengths, chunk.End-chunk.Start)
		}
		if len(chunks) == 0 {
			return 0, nil
		}
	}
	question, err := appendQuestion(r, c.o.Database == nil)
	if err != nil {
		return 0, err
	}
	c.asking.Lock()
	defer c.asking.Unlock()
	if c.ctx.Err() != nil {
		return 0, errClosed
	}
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	answers, err := c.exchange(ctx, question)
	if err == nil && slices.Max(answers) > len(tokens) {
		err = fmt.Errorf("workers have %d of its %d tokens", answers, len(tokens))
	}
	if err != nil {
		c.drop() // an answer that comes late is never one to the next question
		if ctx.Err() != nil {
			err = errors.Join(context.Cause(ctx), err)
		}
		return 0, fmt.Errorf("lookup: request %.80q: %w", id, err)
	}
	if slices.Max(answers) != slices.Min(answers) {
		c.differ.Warn(c.o.Logger, "lookup: workers have different numbers of tokens",
			"request", shortened(id), "tokens", answers)
	}
	return slices.Min(answers), nil
}

// exchange asks all workers at once. The connections are no good after an error.
func (c *Client) exchange(ctx context.Context, question [][]byte) (answers []int, err error) {
	answers = make([]int, len(c.conns))
	for i := range c.conns {
		if err := c.connect(ctx, i); err != nil {
			return nil, err
		}
		conn := c.conns[i]
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		defer func() {
			if !stop() && err == nil {
				err = ctx.Err() // the connection is closed
			}
		}()
		if err := c.conns[i].Send(question); err != nil {
			return nil, fmt.Errorf("worker %d: %w", i, err)
		}
	}
	for i, conn := range c.conns {
		frames, err := conn.Receive()
		if err == nil {
			answers[i], err = readAnswer(frames)
		}
		if err != nil {
			return nil, fmt.Errorf("worker %d: %w", i, err)
		}
	}
	return answers, nil
}

// connect connects to a worker, if that is not done.
func (c *Client) connect(ctx context.Context, i int) error {
	if c.conns[i] != nil {
		return nil
	}
	var d net.Dialer
	raw, err := d.DialContext(ctx, "unix", c.o.Paths[i])
	if err != nil {
		return fmt.Errorf("worker %d: %w", i, err)
	}
	conn := zmtp.New(raw, zmtp.Options{MaxMessage: 4096, MaxFrames: 2, SendTimeout: c.o.Timeout})
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	_, err = conn.Greet(zmq4.Req, c.o.Timeout+greetingTimeout) // ctx ends before
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("worker %d: %w", i, err), raw.Close())
	}
	c.conns[i] = conn
	return nil
}

// drop closes all connections.
func (c *Client) drop() {
	for i, conn := range c.conns {
		if conn != nil {
			_ = conn.Close()
		}
		c.conns[i] = nil
	}
}

// Close ends a look-up that is under way, and the connections.
func (c *Client) Close() error {
	c.end()
	c.asking.Lock()
	defer c.asking.Unlock()
	c.drop()
	return nil
}
