package kvevents

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"

	"github.com/tinylib/msgp/msgp"

	"github.com/ringcache/ringcache/internal/msgpackguard"
	"github.com/ringcache/ringcache/internal/sentinel"
	"github.com/ringcache/ringcache/kv"
	"github.com/ringcache/ringcache/kv/directory"
)

var errInvalid = sentinel.New(sentinel.Invalid, "kvevents: invalid batch")

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errInvalid}, args...)...)
}

// event is one of vLLM's (vllm/distributed/kv_events.py): blocks that were stored or removed, or that all are gone.
type event struct {
	kind   string
	hashes [][8]byte
	medium string
	group  int64
}

const (
	stored  = "BlockStored"
	removed = "BlockRemoved"
	cleared = "AllBlocksCleared"
)

// defaultMedium is where blocks are if the event does not say.
const defaultMedium = "GPU"

// leastEvent is how many bytes an event has at least: the name of a class. Memory is taken for as many as there can be.
const leastEvent = len(stored)

// parseBatch reads a batch: a list of the time, the events, and possibly the data parallel rank.
func parseBatch(b []byte) ([]event, error) {
	if err := msgpackguard.Check(b, msgpackguard.Limits{Depth: 8}); err != nil {
		return nil, invalid("%v", err)
	}
	events, err := readBatch(b)
	if err != nil {
		return nil, invalid("%v", err)
	}
	return events, nil
}

func readBatch(b []byte) ([]event, error) {
	n, b, err := msgp.ReadArrayHeaderBytes(b)
	if err != nil || n < 2 {
		return nil, fmt.Errorf("a list of %d values: %w", n, err)
	}
	if b, err = msgp.Skip(b); err != nil { // the time
		return nil, err
	}
	n, b, err = msgp.ReadArrayHeaderBytes(b)
	if err != nil {
		return nil, err
	}
	if int(n) > len(b)/leastEvent {
		return nil, fmt.Errorf("%d events in %d bytes", n, len(b))
	}
	events := make([]event, n)
	for i := range events {
		if b, err = readEvent(b, &events[i]); err != nil {
			return nil, fmt.Errorf("event %d: %w", i, err)
		}
	}
	return events, nil
}

// fields of an event that is a list, as releases up to 0.15 send it, behind the name of its class.
var listFields = map[string][]string{
	stored:  {"block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium"},
	removed: {"block_hashes", "medium"},
}

func readEvent(b []byte, e *event) ([]byte, error) {
	e.medium = defaultMedium
	if msgp.NextType(b) == msgp.ArrayType {
		n, b, err := msgp.ReadArrayHeaderBytes(b)
		if err != nil || n < 1 {
			return b, fmt.Errorf("an event without a class: %w", err)
		}
		if e.kind, b, err = msgp.ReadStringBytes(b); err != nil {
			return b, err
		}
		for i := range int(n) - 1 {
			name := ""
			if names := listFields[e.kind]; i < len(names) {
				name = names[i]
			}
			if b, err = e.field(name, b); err != nil {
				return b, err
			}
		}
		return b, e.check()
	}
	n, b, err := msgp.ReadMapHeaderBytes(b)
	for ; n > 0 && err == nil; n-- {
		var name []byte
		if name, b, err = msgp.ReadStringZC(b); err == nil {
			b, err = e.field(string(name), b)
		}
	}
	if err == nil {
		err = e.check()
	}
	return b, err
}

func (e *event) check() error {
	if e.kind != stored && e.kind != removed && e.kind != cleared {
		return fmt.Errorf("class %.40q is not known", e.kind)
	}
	if e.kind != cleared && e.hashes == nil {
		return fmt.Errorf("%s without block_hashes", e.kind)
	}
	return nil
}

func (e *event) field(name string, b []byte) (rest []byte, err error) {
	switch {
	case name == "type":
		e.kind, rest, err = msgp.ReadStringBytes(b)
		return rest, err
	case name == "block_hashes":
		n, b, err := msgp.ReadArrayHeaderBytes(b)
		if err != nil {
			return b, err
		}
		e.hashes = make([][8]byte, n)
		for i := range e.hashes {
			if b, err = readHash(b, &e.hashes[i]); err != nil {
				return b, err
			}
		}
		return b, nil
	case name == "medium" && !msgp.IsNil(b):
		e.medium, rest, err = msgp.ReadStringBytes(b)
		return rest, err
	case name == "group_idx" && !msgp.IsNil(b):
		e.group, rest, err = msgp.ReadInt64Bytes(b)
		return rest, err
	}
	return msgp.Skip(b)
}

// readHash reads the last 8 bytes of a hash, which is a number of 64 bits or bytes.
func readHash(b []byte, h *[8]byte) (rest []byte, err error) {
	switch msgp.NextType(b) {
	case msgp.BinType:
		var all []byte
		all, rest, err = msgp.ReadBytesZC(b)
		if err == nil && len(all) < len(h) {
			err = fmt.Errorf("a hash of %d bytes", len(all))
		}
		if err == nil {
			*h = [8]byte(all[len(all)-8:])
		}
		return rest, err
	case msgp.UintType:
		var n uint64
		n, rest, err = msgp.ReadUint64Bytes(b)
		binary.BigEndian.PutUint64(h[:], n)
		return rest, err
	}
	var n int64
	n, rest, err = msgp.ReadInt64Bytes(b)
	binary.BigEndian.PutUint64(h[:], uint64(n))
	return rest, err
}

// keyOf returns the key of a block. Groups of layers have blocks of their own.
func keyOf(model string, group int64, hash []byte) directory.Key {
	space := "vllm@" + model
	if group > 0 {
		space += "@" + strconv.FormatInt(group, 10)
	}
	return directory.KeyOf(space, hash)
}

// AppendKeys appends the keys of the blocks of a request of a model, in its first group of layers.
func AppendKeys(dst []directory.Key, model string, c *kv.Chain) []directory.Key {
	for i := range c.Len() {
		h := c.Hash(i)
		dst = append(dst, keyOf(model, 0, h[max(0, len(h)-8):]))
	}
	return dst
}

// apply applies a batch of an instance.
func apply(d *directory.Directory, s Source, events []event) error {
	id := directory.ID{Instance: s.Instance}
	for _, e := range events {
		if e.kind == cleared {
			d.Clear(id, func(string) bool { return true })
			continue
		}
		var reports []directory.Report
		for some := range slices.Chunk(e.hashes, 1024) {
			reports = reports[:0]
			for _, h := range some {
				reports = append(reports, directory.Report{
					Evicted: e.kind == removed, Key: keyOf(s.Model, e.group, h[:]), Number: -1,
				})
			}
			if err := d.Apply(id, e.medium, reports); err != nil {
				return err
			}
		}
	}
	return nil
}
