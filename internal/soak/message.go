package main

import (
	"encoding/binary"
	"fmt"

	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmstore"
)

// message is a line between the supervisor and a child.
//
//	from a writer:   ready, added, gone, sent, fence, reset, state
//	from a reader:   ready, absent, done, state
//	from the pair:   ready, state
//	to a writer:     finish, abort, pass, reset, check, end
//	to a reader:     read, check, end
//	from any child:  failed
//
// A line that makes the ledger expect more is written after the fact, and an order that allows a writer to do
// more is sent after the ledger allows it. A kill between line and fact then makes the checks weaker, and
// never wrong.
type message struct {
	Kind    string   `json:"kind"`
	Request string   `json:"request,omitempty"`
	Objects []object `json:"objects,omitempty"`
	// Late reads may find that the object was removed, but not wrong bytes.
	Late bool `json:"late,omitempty"`

	Fence int `json:"fence,omitempty"`
	// Keep makes a writer that ends leave the segment to the next one.
	Keep bool `json:"keep,omitempty"`

	Adoption *shmstore.Adoption `json:"adoption,omitempty"`

	// Of done: bytes compared, objects read, and late reads whose object was removed.
	Bytes int64 `json:"bytes,omitempty"`
	Reads int64 `json:"reads,omitempty"`
	Gone  int64 `json:"late_gone,omitempty"`
	// Of state: goroutines or threads, and what the pair did since the last one.
	Goroutines int        `json:"goroutines,omitempty"`
	Pair       pairCounts `json:"pair,omitzero"`

	// Text is why a reader found no segment.
	Text string `json:"text,omitempty"`
	// Error is an error of the tested code; Wrong is set if bytes were wrong.
	Error string `json:"error,omitempty"`
	Wrong bool   `json:"wrong,omitempty"`
}

// object is a handle, and the content that a reader must find there.
type object struct {
	Key       string `json:"key"`
	Place     uint64 `json:"place"` // address of a chunk, offset of a payload
	ID        uint32 `json:"id"`
	Signature []byte `json:"signature,omitempty"` // none or 32 bytes
	Nonce     uint64 `json:"nonce,omitempty"`
	Size      int    `json:"size"` // bytes of content
	Uses      int    `json:"uses,omitempty"`
}

func (o object) handle() serde.Address {
	h := serde.Address{Address: o.Place, ID: o.ID}
	if o.Signature != nil {
		h.Signature = serde.Signature(o.Signature)
	}
	return h
}

func (o *object) setHandle(h serde.Address) {
	o.Place, o.ID, o.Signature = h.Address, h.ID, nil
	if !h.Signature.IsZero() {
		o.Signature = h.Signature[:]
	}
}

func (o object) String() string {
	return fmt.Sprintf("key %s, id %d at %d, nonce %d, %d bytes", o.Key, o.ID, o.Place, o.Nonce, o.Size)
}

func (o object) seed() uint64 { return contentSeed(o.Key, o.Nonce) }

// note is what is kept with an object, so that an adopter can check it.
func (o object) note() []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, o.Nonce), uint64(o.Size))
}

// readNote completes an object by its note.
func (o *object) readNote(note []byte) error {
	if len(note) != 16 {
		return wrongBytes(fmt.Sprintf("in the note of key %s: %x", o.Key, note))
	}
	o.Nonce, o.Size = binary.LittleEndian.Uint64(note), int(binary.LittleEndian.Uint64(note[8:]))
	return nil
}
