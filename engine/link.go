package engine

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/ringcache/ringcache/serde/enginecore"
)

// link is the pair of sockets of one session.
type link struct {
	input  Socket
	output Socket
	first  chan []byte // of one: the engine's first message on the input socket
	peer   string      // the engine's connection there, constant after first
}

// bind binds the sockets of a session. Each session has new ones, so that no message of a dead engine, or for it,
// reaches its successor.
func (c *Client) bind(session uint64) (*link, error) {
	endpoint := func(name string) string {
		if c.o.Bind != "" {
			return "tcp://" + net.JoinHostPort(c.o.Bind, "0")
		}
		return "ipc://" + filepath.Join(c.dir, name+strconv.FormatUint(session, 10))
	}
	input, err := c.o.Transport.Router(endpoint("in"), 0)
	if err != nil {
		return nil, err
	}
	output, err := c.o.Transport.Pull(endpoint("out"))
	if err != nil {
		return nil, errors.Join(err, input.Close())
	}
	return &link{input: input, output: output, first: make(chan []byte, 1)}, nil
}

// addresses are what an engine connects to.
func (l *link) addresses() *enginecore.Init {
	return &enginecore.Init{Inputs: []string{l.input.Endpoint()}, Outputs: []string{l.output.Endpoint()}}
}

// send sends one message to the engine.
func (l *link) send(frames [][]byte) error {
	return l.input.Send(l.peer, frames...)
}

func (l *link) close() error { return errors.Join(l.input.Close(), l.output.Close()) }

// socketDir makes a folder for sockets, whose paths may have 107 bytes.
func socketDir(in string) (string, error) {
	const most = 107 - len("/out") - len("18446744073709551615")
	dir, err := os.MkdirTemp(in, "ringcache-")
	if err == nil && len(dir) > most {
		if err = os.Remove(dir); err == nil && in != "" {
			return "", fmt.Errorf("%w: Options.Dir %q is too long for the path of a socket; use a shorter one",
				errInvalid, in)
		}
		dir, err = os.MkdirTemp("/tmp", "ringcache-")
	}
	if err != nil {
		return "", fmt.Errorf("engine: no folder for the sockets: %w", err)
	}
	return dir, nil
}
