package shared

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/ringcache/ringcache/internal/msgpackguard"
	"github.com/ringcache/ringcache/kv/directory"
)

// A change on the wire is a MessagePack array of id, at, what, reset, state and places. The script reads all
// but state, so its members are where it expects them. Texts have any bytes.
//
//	id      the worker's number, 8 bytes, and its instance
//	at      the number of the last entry about the worker that its sender has seen, as a text
//	what    told, gone or late
//	reset   whether the worker was emptied before
//	state   as encodeState has it
//	places  arrays of index, cleared, keys that are held, keys that are not
const (
	told = "told"
	gone = "gone"
	late = "late"
)

var errRead = fmt.Errorf("shared: what is in Redis can't be read: %w", fs.ErrInvalid)

func encodeID(id directory.ID) string {
	return string(append(binary.BigEndian.AppendUint64(nil, uint64(id.Worker)), id.Instance...))
}

func decodeID(text string) (id directory.ID, err error) {
	if len(text) < 9 {
		return id, fmt.Errorf("%w: a worker %.40q", errRead, text)
	}
	return directory.ID{Worker: int64(binary.BigEndian.Uint64([]byte(text))), Instance: text[8:]}, nil
}

// keyBytes is how a key stands in a set: numbers of 64 bits are shorter.
func keyBytes(k directory.Key) []byte {
	if binary.BigEndian.Uint64(k[:]) == 0 {
		return k[8:]
	}
	return k[:]
}

func keyOf(b []byte) (k directory.Key, ok bool) {
	if len(b) != 8 && len(b) != len(k) {
		return k, false
	}
	copy(k[len(k)-len(b):], b)
	return k, true
}

// encodeState has what a record has besides keys.
func encodeState(c directory.Change) []byte {
	w := c.Worker
	b := msgp.AppendArrayHeader(nil, 10)
	b = msgp.AppendString(b, w.IP)
	b = msgp.AppendInt64(b, w.Port)
	b = msgp.AppendString(b, w.PeerURL)
	b = msgp.AppendBool(b, w.Lasting)
	b = msgp.AppendInt64(b, w.Registered.UnixMicro())
	b = msgp.AppendInt64(b, w.Heartbeat.UnixMicro())
	b = msgp.AppendBool(b, c.Fresh)
	b = msgp.AppendBool(b, c.Away)
	b = msgp.AppendString(b, c.Wants)
	b = msgp.AppendArrayHeader(b, uint32(len(c.Places)))
	for _, p := range c.Places {
		b = msgp.AppendArrayHeader(b, 4)
		b = msgp.AppendString(b, p.Location)
		b = msgp.AppendInt64(b, p.Last)
		b = msgp.AppendBool(b, p.Numbered)
		b = msgp.AppendBool(b, p.Gap)
	}
	return b
}

// reader reads values one after the other. After an error it reads nothing.
type reader struct {
	b   []byte
	err error
}

func (r *reader) list(want int) (n int) {
	var m uint32
	if r.err == nil {
		m, r.b, r.err = msgp.ReadArrayHeaderBytes(r.b)
	}
	if n = int(m); r.err == nil && (want >= 0 && n != want || n > len(r.b)) {
		r.err = errors.New("a list of another length")
	}
	if r.err != nil {
		return 0
	}
	return n
}

func (r *reader) bytes() (b []byte) {
	if r.err == nil {
		b, r.b, r.err = msgp.ReadStringZC(r.b)
	}
	return b
}

func (r *reader) text() string { return string(r.bytes()) }

func (r *reader) number() (n int64) {
	if r.err == nil {
		n, r.b, r.err = msgp.ReadInt64Bytes(r.b)
	}
	return n
}

func (r *reader) truth() (is bool) {
	if r.err == nil {
		is, r.b, r.err = msgp.ReadBoolBytes(r.b)
	}
	return is
}

func (r *reader) failed(what string) error {
	if r.err == nil {
		return nil
	}
	return fmt.Errorf("%w: %s: %v", errRead, what, r.err)
}

// decodeState is the reverse of encodeState.
func decodeState(id directory.ID, b []byte) (c directory.Change, err error) {
	if err := msgpackguard.Check(b, msgpackguard.Limits{Depth: 4}); err != nil {
		return c, fmt.Errorf("%w: the state of a worker: %v", errRead, err)
	}
	r := &reader{b: b}
	r.list(10)
	c.Worker = directory.Worker{
		ID: id, IP: r.text(), Port: r.number(), PeerURL: r.text(), Lasting: r.truth(),
		Registered: time.UnixMicro(r.number()), Heartbeat: time.UnixMicro(r.number()),
	}
	c.Fresh, c.Away, c.Wants = r.truth(), r.truth(), r.text()
	n := r.list(-1)
	if n > directory.MaxPlaces {
		return c, fmt.Errorf("%w: a worker with %d locations", errRead, n)
	}
	for range n {
		r.list(4)
		c.Places = append(c.Places, directory.ChangedPlace{
			Location: r.text(), Last: r.number(), Numbered: r.truth(), Gap: r.truth(),
		})
	}
	return c, r.failed("the state of a worker")
}

func appendChange(b []byte, c directory.Change, at int64) []byte {
	what := told
	switch {
	case c.Late:
		what = late
	case c.Gone:
		what = gone
	}
	b = msgp.AppendArrayHeader(b, 6)
	b = msgp.AppendString(b, encodeID(c.Worker.ID))
	b = msgp.AppendString(b, fmt.Sprint(at))
	b = msgp.AppendString(b, what)
	b = msgp.AppendBool(b, c.Reset)
	if c.Gone {
		b = msgp.AppendString(b, "")
	} else {
		b = msgp.AppendStringFromBytes(b, encodeState(c))
	}
	n := uint32(0)
	for _, p := range c.Places {
		if changed(p) {
			n++
		}
	}
	b = msgp.AppendArrayHeader(b, n)
	for i, p := range c.Places {
		if !changed(p) {
			continue
		}
		b = msgp.AppendArrayHeader(b, 4)
		b = msgp.AppendInt(b, i)
		b = msgp.AppendBool(b, p.Cleared)
		for _, keys := range [][]directory.Key{p.Held, p.Evicted} {
			b = msgp.AppendArrayHeader(b, uint32(len(keys)))
			for _, k := range keys {
				b = msgp.AppendStringFromBytes(b, keyBytes(k))
			}
		}
	}
	return b
}

func changed(p directory.ChangedPlace) bool { return p.Cleared || len(p.Held)+len(p.Evicted) > 0 }

// decodeChange reads the first change of an entry, and returns the rest.
func decodeChange(b []byte) (c directory.Change, rest []byte, err error) {
	end, err := msgpackguard.Next(b, 0, msgpackguard.Limits{Depth: 4})
	if err != nil {
		return c, nil, fmt.Errorf("%w: a change: %v", errRead, err)
	}
	r := &reader{b: b[:end]}
	r.list(6)
	id, err := decodeID(r.text())
	r.text()
	what, reset, state := r.text(), r.truth(), r.bytes()
	switch {
	case r.err != nil:
		return c, nil, r.failed("a change")
	case err != nil:
		return c, nil, err
	case what == gone || what == late:
		c.Worker.ID, c.Gone, c.Late = id, true, what == late
		return c, b[end:], nil
	case what != told:
		return c, nil, fmt.Errorf("%w: a worker is %.40q", errRead, what)
	}
	if c, err = decodeState(id, state); err != nil {
		return c, nil, err
	}
	c.Reset = reset
	for range r.list(-1) {
		r.list(4)
		i := r.number()
		if r.err == nil && (i < 0 || i >= int64(len(c.Places))) {
			r.err = errors.New("a location that the worker has not")
		}
		if r.err != nil {
			break
		}
		p := &c.Places[i]
		p.Cleared = r.truth()
		p.Held, p.Evicted = r.keys(), r.keys()
	}
	return c, b[end:], r.failed("a change")
}

func (r *reader) keys() (keys []directory.Key) {
	for range r.list(-1) {
		k, ok := keyOf(r.bytes())
		if r.err == nil && !ok {
			r.err = errors.New("a key of another length")
		}
		if r.err != nil {
			return nil
		}
		keys = append(keys, k)
	}
	return keys
}
