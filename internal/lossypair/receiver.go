package lossypair

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/ringcache/ringcache/lrusync"
)

type request struct {
	ID       uint64
	Envelope lrusync.Envelope
	Features []lrusync.Feature[[]byte]
	Clear    bool // clears the receiver, nothing else
	List     bool // asks for the contents, nothing else
}

type reply struct {
	ID       uint64
	Result   lrusync.Result[[]byte]
	Contents []lrusync.KeySize
	Error    string
}

// Serve is the engine's end: it answers what comes until the other end closes the connection.
func Serve(conn net.Conn, r *lrusync.Receiver[[]byte]) error {
	in, out := gob.NewDecoder(conn), gob.NewEncoder(conn)
	for {
		var q request
		if err := in.Decode(&q); errors.Is(err, io.EOF) {
			return r.CheckStructure()
		} else if err != nil {
			return fmt.Errorf("reading a request: %w", err)
		}
		a := reply{ID: q.ID}
		switch {
		case q.List:
			a.Contents, _ = r.Contents()
		case q.Clear:
			r.Clear(q.Envelope)
		default:
			var err error
			if a.Result, err = r.Receive(q.Envelope, q.Features); err != nil {
				a.Error = err.Error()
			}
		}
		if err := out.Encode(a); err != nil {
			return fmt.Errorf("answering: %w", err)
		}
	}
}
