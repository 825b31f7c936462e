package storetest

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/ringcache/ringcache/fuzz"
)

// Config is what a sequence asks of a store.
type Config struct {
	Size      int // bytes of the memory
	MaxObject int // the largest object, with what the store adds to it
	Readers   int
	Secret    []byte // 32 bytes for signatures
}

// New makes a store.
type New func(Config) (Store, error)

// system performs operations with a store. Those that the store has nothing for are skipped.
type system struct {
	new  New
	kind func(error) string

	config   Config
	store    Store // nil: none was created, or it was closed
	requests map[string]Request
}

// skipped is the kind of what the store has nothing for.
const skipped = "unsupported"

var errSkipped = errors.New("the store has no such operation")

func (s *system) do(op fuzz.Op) fuzz.Reply {
	fields, err := s.perform(op)
	switch {
	case errors.Is(err, errSkipped):
		return fuzz.Reply{Kind: skipped, Text: err.Error()}
	case err != nil:
		return fuzz.Reply{Kind: s.kind(err), Text: err.Error()}
	case fields == nil:
		fields = map[string]any{}
	}
	return fuzz.Reply{Fields: fields}
}

func (s *system) perform(op fuzz.Op) (map[string]any, error) {
	reader, isReader := readerOf(op)
	if op.Name == "store.create" {
		return s.create(op)
	}
	if s.store == nil {
		return nil, errSkipped
	}
	key, _ := op.Args["key"].(string)
	switch op.Name {
	case "store.put":
		return s.put(op, key)
	case "store.lookup":
		return s.lookup(op, key)
	case "store.get":
		if !isReader {
			return nil, errSkipped
		}
		value, err := s.store.Get(reader, key, handleOf(op))
		return map[string]any{"value": hex.EncodeToString(value)}, err
	case "store.close":
		if isReader {
			return nil, errSkipped
		}
		return nil, s.close()
	case "store.state":
		return nil, nil // which is looked at after every operation
	}
	if id, ok := op.Args["request"].(string); ok {
		return nil, s.request(op.Name, id)
	}
	return s.optional(op, key, reader, isReader)
}

// readerOf returns the reader that an operation is for: stores are named w, r0, r1 ...
func readerOf(op fuzz.Op) (int, bool) {
	name, _ := op.Args["store"].(string)
	n, err := strconv.Atoi(strings.TrimPrefix(name, "r"))
	return n, err == nil
}

func (s *system) create(op fuzz.Op) (map[string]any, error) {
	if s.store != nil {
		return nil, errors.New("there is a store")
	}
	c := Config{Size: number(op.Args["size"]), MaxObject: number(op.Args["max_object"]),
		Readers: number(op.Args["readers"])}
	if c.Size < 1 || c.MaxObject < 1 || c.Readers < 1 { // when the sequence is minimized
		return nil, errSkipped
	}
	secret, _ := op.Args["secret"].(string)
	c.Secret, _ = hex.DecodeString(secret)
	store, err := s.new(c)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errSkipped, err)
	}
	s.config, s.store, s.requests = c, store, map[string]Request{}
	return nil, nil
}

func (s *system) close() error {
	if s.store == nil {
		return nil
	}
	err := s.store.Close()
	s.store = nil
	return err
}

func (s *system) put(op fuzz.Op, key string) (map[string]any, error) {
	value, ok := valueOf(op)
	if !ok {
		return nil, errSkipped
	}
	put := s.store.Put
	if r, named, err := s.named(op); err != nil {
		return nil, err
	} else if named {
		put = r.Put
	}
	h, err := put(key, value)
	return handleFields(h), err
}

func (s *system) lookup(op fuzz.Op, key string) (map[string]any, error) {
	lookup := s.store.Lookup
	if r, named, err := s.named(op); err != nil {
		return nil, err
	} else if named {
		lookup = r.Lookup
	}
	h, err := lookup(key)
	return handleFields(h), err
}

// named returns the request that an operation names.
func (s *system) named(op fuzz.Op) (r Request, named bool, err error) {
	id, named := op.Args["request"].(string)
	if !named {
		return nil, false, nil
	}
	if _, ok := s.store.(Requester); !ok {
		return nil, false, errSkipped
	}
	r, ok := s.requests[id]
	if !ok {
		return nil, true, fmt.Errorf("request %q is not open", id)
	}
	return r, true, nil
}

func (s *system) request(name, id string) error {
	begin, ok := s.store.(Requester)
	if !ok {
		return errSkipped
	}
	r, open := s.requests[id]
	if name == "store.begin" {
		if open {
			return fmt.Errorf("request %q is open", id)
		}
		r, err := begin.Begin(id)
		if err == nil {
			s.requests[id] = r
		}
		return err
	}
	if !open {
		return fmt.Errorf("request %q is not open", id)
	}
	end := map[string]func() error{"store.rollback": r.Rollback, "store.finish": r.Finish, "store.abort": r.Abort}[name]
	if end == nil {
		return r.Commit()
	}
	err := end()
	if err == nil {
		delete(s.requests, id)
	}
	return err
}

// optional performs what a store need not have.
func (s *system) optional(op fuzz.Op, key string, reader int, isReader bool) (map[string]any, error) {
	evicter, evicts := s.store.(Evicter)
	freer, frees := s.store.(Freer)
	clearer, clears := s.store.(Clearer)
	fencer, fences := s.store.(Fencer)
	resetter, resets := s.store.(Resetter)
	adopter, adopts := s.store.(Adopter)
	toucher, touches := s.store.(Toucher)
	switch {
	case op.Name == "store.evict" && evicts:
		evicted, err := evicter.Evict(key)
		return map[string]any{"evicted": evicted}, err
	case op.Name == "store.free_unused" && frees:
		return nil, freer.FreeUnused()
	case op.Name == "store.clear" && clears:
		return nil, clearer.Clear()
	case op.Name == "store.fence" && fences:
		return nil, fencer.Fence()
	case op.Name == "store.reset_readers" && resets:
		return nil, resetter.ResetReaders()
	case op.Name == "store.adopt" && adopts:
		dropped, err := adopter.Crash()
		clear(s.requests)
		return map[string]any{"dropped": dropped}, err
	case op.Name == "store.touch" && touches && isReader:
		return nil, toucher.TouchHandle(reader, key, handleOf(op))
	case op.Name == "store.touch" && touches:
		return nil, toucher.Touch(key)
	case op.Name == "store.release_touches" && touches:
		return nil, toucher.ReleaseTouches()
	}
	return nil, errSkipped
}

func handleFields(h Handle) map[string]any {
	out := map[string]any{"address": h.Address, "id": h.ID}
	if h.Signature != "" {
		out["signature"] = h.Signature
	}
	return out
}

func handleOf(op fuzz.Op) Handle {
	h := Handle{Address: unsigned(op.Args["address"]), ID: unsigned(op.Args["id"])}
	switch v := op.Args["signature"].(type) {
	case string:
		h.Signature = v
	case []any:
		b := make([]byte, len(v))
		for i, x := range v {
			b[i] = byte(number(x))
		}
		h.Signature = hex.EncodeToString(b)
	}
	return h
}

func valueOf(op fuzz.Op) ([]byte, bool) {
	v, _ := op.Args["value"].(map[string]any)
	text, ok := v["hex"].(string)
	if !ok {
		return nil, false
	}
	b, err := hex.DecodeString(text)
	return b, err == nil
}

func number(v any) int { return int(unsigned(v)) }

func unsigned(v any) uint64 {
	switch v := v.(type) {
	case int:
		return uint64(v)
	case int64:
		return uint64(v)
	case uint32:
		return uint64(v)
	case uint64:
		return v
	}
	return 0
}
