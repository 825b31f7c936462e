package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash"
	"sync/atomic"
	"time"

	"github.com/ringcache/ringcache/internal/futex"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring/segment"
)

// limit is work that no implementation can do without, as a plain loop: what a column of ours is measured
// against.
type limit struct {
	peer    string
	prepare func(*limit, Case) error
	once    func(*limit) error
	each    bool   // times of single operations
	settle  func() // between those, outside of the clock

	segment *segment.Segment
	at      int // in the ring
	item    *serde.Item
	payload []byte // metadata and main document
	mac     hash.Hash
	message [108]byte
	sum     [sha256.Size]byte
	keys    []string
	objects map[string]int
	found   int
	stop    func() error
}

func (l *limit) Peer() string { return l.peer }

func (l *limit) Prepare(c Case) error { return l.prepare(l, c) }

func (l *limit) Run(n int) ([]float64, error) {
	once := func() error { return l.once(l) }
	if l.each {
		return timedEach(n, once, func() error {
			if l.settle != nil {
				l.settle()
			}
			return nil
		})
	}
	return timed(n, once, func() error { return nil })
}

func (l *limit) Close() (err error) {
	if l.stop != nil {
		err = l.stop()
	}
	if l.segment != nil {
		err = errors.Join(err, l.segment.Destroy())
	}
	return err
}

// limitCopy is the column of one copy.
const limitCopy = "limit: copy"

// bareCopy copies the tensors of the item into the next place of a mapped ring.
func bareCopy() Job {
	return &limit{peer: limitCopy, prepare: (*limit).openRing, once: func(l *limit) error {
		place := l.place()
		copy(place[copy(place, tensorOf(l.item, 0).Data):], tensorOf(l.item, 1).Data)
		return nil
	}}
}

// bareReserve writes what an object consists of besides its pixels: header, count, metadata, main document
// and grid, then the signature, and the id at last. It counts nothing. With plan it encodes metadata and main
// document each time, by package serde; without it they are prepared.
func bareReserve(plan bool) func() Job {
	peer := "limit: write and sign"
	if plan {
		peer = "limit: encode, write and sign"
	}
	return func() Job {
		return &limit{peer: peer, each: true, prepare: (*limit).openRing, once: func(l *limit) error {
			if plan {
				if err := l.encode(); err != nil {
					return err
				}
			}
			place := l.place()
			binary.LittleEndian.PutUint64(place[4:], uint64(len(l.payload)))
			n := 12 + copy(place[12:], l.payload)
			copy(place[n:], tensorOf(l.item, 1).Data)
			l.sign()
			binary.LittleEndian.PutUint32(place, uint32(l.at))
			return nil
		}}
	}
}

// encode makes metadata and main document.
func (l *limit) encode() error {
	plan, err := serde.NewPlan(l.item, serde.Options{})
	if err != nil {
		return err
	}
	l.payload = append(append(l.payload[:0], plan.Metadata...), plan.Frames()[0]...)
	return nil
}

// bareSign makes one signature.
func bareSign() Job {
	return &limit{peer: "limit: one HMAC", prepare: func(l *limit, _ Case) error {
		l.mac = hmac.New(sha256.New, l.message[:32])
		return nil
	}, once: func(l *limit) error { l.sign(); return nil }}
}

// bareMap looks up one of so many keys in a map.
func bareMap() Job {
	return &limit{peer: "limit: a map", prepare: func(l *limit, c Case) error {
		l.objects = make(map[string]int, c.Live)
		for i := range c.Live {
			l.objects[keyOf(i)] = i
		}
		for i := range c.Live {
			l.keys = append(l.keys, keyOf(scattered(i, c.Live)))
		}
		return nil
	}, once: func(l *limit) error {
		l.at++
		l.found += l.objects[l.keys[l.at%len(l.keys)]]
		return nil
	}}
}

// openRing maps a ring and makes an item, with what a store writes about it.
func (l *limit) openRing(c Case) (err error) {
	if l.segment, err = segment.Create(segment.Options{Name: segmentName(), RingSize: c.RingBytes}); err != nil {
		return err
	}
	if err := touch(l.segment); err != nil { // as a store's ring that is full
		return err
	}
	l.item = qwenItem(c.Size)
	l.mac = hmac.New(sha256.New, l.message[:32])
	return l.encode()
}

// place returns where the next object goes: aligned, as a pool's objects are, since copies are slower to
// other places.
func (l *limit) place() []byte {
	ring, room := l.segment.Ring(), (len(tensorOf(l.item, 0).Data)+slack/2+63)&^63
	if l.at += room; l.at+room > len(ring) {
		l.at = 0
	}
	return ring[l.at : l.at+room]
}

func (l *limit) sign() {
	l.mac.Reset()
	_, _ = l.mac.Write(l.message[:]) // a hash never fails
	l.mac.Sum(l.sum[:0])
}

// futexTrip wakes a thread that sleeps and waits for its answer: the least that two processes need to take
// turns.
func futexTrip() Job {
	var word atomic.Uint32
	const ours, theirs, ended = 0, 1, 2
	wait := func(turn uint32) error {
		for {
			now := word.Load()
			if now == turn || now == ended {
				return nil
			}
			if err := futex.Wait(&word, now, time.Minute); err != nil {
				return err
			}
		}
	}
	return &limit{peer: "limit: futex there and back", each: true, settle: func() {
		time.Sleep(100 * time.Microsecond) // by then the other thread sleeps, as a worker that waits does
	}, prepare: func(l *limit, _ Case) error {
		done := make(chan error, 1)
		go func() {
			for {
				if err := wait(theirs); err != nil || word.Load() == ended {
					done <- err
					return
				}
				word.Store(ours)
				if err := futex.Wake(&word, 1); err != nil {
					done <- err
					return
				}
			}
		}()
		l.stop = func() error {
			word.Store(ended)
			return errors.Join(futex.Wake(&word, 1), <-done)
		}
		return nil
	}, once: func(*limit) error {
		word.Store(theirs)
		return errors.Join(futex.Wake(&word, 1), wait(ours))
	}}
}
