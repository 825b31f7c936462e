package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/ringcache/ringcache/lrusync"
)

// Frames in both directions are msgpack, structs as arrays, behind their length,
// 4 bytes, little-endian. lockstep_peer.py has the same.

type operation uint8

const (
	opRequest operation = 1
	opClear   operation = 2 // both ends are cleared
	opForget  operation = 3 // this end loses everything and the other is not notified
	opEnd     operation = 4
)

type hello struct {
	Mode     string
	Capacity float64
	Requests int
	Seed     uint64
}

type greeting struct {
	Release, Python string
	DTypes          []string // that its torch can make tensors of
}

type request struct {
	Op    operation
	ID    uint64
	Order bool // compare, or answer with, the contents after this request
	Items []item
	// From vLLM's sender:
	Contents contents
	Counts   map[string]int64 // at opEnd
}

// item is one feature of a request. Has reports that it comes with data; from
// vLLM's sender Recipe is there in any case, to compare with.
type item struct {
	Key, Identifier string
	Modality        string
	Position        int
	Has             bool
	Recipe          recipe
}

type answer struct {
	ID       uint64
	Values   []value
	Missing  []string
	Error    string // the request failed in another way than by missing items
	Contents contents

	lost bool // there was none
}

// value is what the peer found in the tensors of an item.
type value struct {
	Stamp, Words int64
}

// contents are those of a cache, oldest first.
type contents struct {
	Keys  []string
	Sizes []int64
	Total int64
}

// differ returns where contents are not those that are wanted.
func (c *contents) differ(want []lrusync.KeySize, total int64) string {
	if len(c.Keys) != len(want) {
		return fmt.Sprintf("vLLM has %d entries %v, we %d %v", len(c.Keys), c.Keys, len(want), want)
	}
	for i, k := range want {
		if c.Keys[i] != k.Key || c.Sizes[i] != k.Size {
			return fmt.Sprintf("entry %d: vLLM has %s of %d bytes, we %s of %d", i, c.Keys[i], c.Sizes[i], k.Key,
				k.Size)
		}
	}
	if c.Total != total {
		return fmt.Sprintf("vLLM accounts %d bytes, we %d", c.Total, total)
	}
	return ""
}

// patience is how long the peer may be silent. vLLM's older caches can hang.
const patience = time.Minute

// wire reads frames and writes them. One goroutine may do the one and another
// the other.
type wire struct {
	conn net.Conn
	in   *bufio.Reader
	*bufio.Writer
	buf []byte
}

func newWire(c net.Conn) *wire {
	return &wire{conn: c, in: bufio.NewReaderSize(c, 1<<16), Writer: bufio.NewWriterSize(c, 1<<16)}
}

func encode(v any) ([]byte, error) {
	var out bytes.Buffer
	out.Write(make([]byte, 4))
	e := msgpack.GetEncoder()
	defer msgpack.PutEncoder(e)
	e.Reset(&out)
	e.UseArrayEncodedStructs(true)
	e.UseCompactInts(true)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	b := out.Bytes()
	binary.LittleEndian.PutUint32(b, uint32(len(b)-4))
	return b, nil
}

func (w *wire) write(v any) error {
	b, err := encode(v)
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

func (w *wire) read(v any) error {
	if err := w.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	var n [4]byte
	if _, err := io.ReadFull(w.in, n[:]); err != nil {
		return err
	}
	if size := int(binary.LittleEndian.Uint32(n[:])); size <= cap(w.buf) {
		w.buf = w.buf[:size]
	} else {
		w.buf = make([]byte, size)
	}
	if _, err := io.ReadFull(w.in, w.buf); err != nil {
		return err
	}
	return msgpack.Unmarshal(w.buf, v)
}
