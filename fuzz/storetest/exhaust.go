package storetest

import (
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/internal/harness"
)

// Exhaust tests a tiny store, of two objects for one reader, with every history of Options.Depth
// operations. Operations that make no sense where they would stand are left out. What fails is
// minimized.
func Exhaust(t testing.TB, n New, o Options) {
	t.Helper()
	p, err := newPlan(n, o)
	if err != nil {
		t.Fatalf("storetest: %v", err)
	}
	f, histories, err := p.exhaust()
	harness.Report(t, "storetest", fmt.Sprintf("%d histories", histories), f, err)
}

// exhaust returns the failure, nil if there is none, and the number of histories.
func (p *plan) exhaust() (f *fuzz.Failure, histories int, err error) {
	e, err := newExhaustion(p)
	if err != nil {
		return nil, 0, err
	}
	// Choices are digits of a number that is counted up. Each has its own base.
	var digits, bases []int
	for {
		at := 0
		c := fuzz.NewChoices(func(base int) int {
			if at == len(digits) {
				digits, bases = append(digits, 0), append(bases, 0)
			}
			bases[at] = base
			at++
			return digits[at-1]
		}, nil)
		ops := e.history(c, p.Depth)
		histories++
		if f := p.test(ops); f != nil {
			return fuzz.Shrink(ops, f, p.test), histories, nil
		}
		digits, bases = digits[:at], bases[:at]
		for at > 0 && digits[at-1]+1 == bases[at-1] {
			at--
		}
		if at == 0 {
			return nil, histories, nil
		}
		digits, bases = digits[:at], bases[:at]
		digits[at-1]++
	}
}

// exhaustion are the operations that a store has, on the tiniest store that is of any interest.
type exhaustion struct {
	config      Config
	half, whole int             // bytes of values
	can         map[string]bool // operations that not every store has
	generation  string
}

func newExhaustion(p *plan) (*exhaustion, error) {
	e := &exhaustion{config: Config{Size: 256, MaxObject: 256, Readers: 1, Secret: make([]byte, 32)},
		generation: p.Release}
	if p.Release != "" {
		e.half, e.whole = 91, 218 // with 37 bytes more, two of the first and one of the second fill the ring
	} else {
		largest, err := p.fits(e.config)
		if err != nil {
			return nil, err
		}
		e.half, e.whole = max(1, largest/3), max(1, largest)
	}
	s, err := p.new(e.config)
	if err != nil {
		return nil, err
	}
	_, requests := s.(Requester)
	_, evicts := s.(Evicter)
	_, frees := s.(Freer)
	_, clears := s.(Clearer)
	_, fences := s.(Fencer)
	_, resets := s.(Resetter)
	_, adopts := s.(Adopter)
	_, touches := s.(Toucher)
	e.can = map[string]bool{
		"requests": requests && p.Release == "", "evict": evicts, "free_unused": frees, "clear": clears,
		"fence": fences, "reset_readers": resets,
		"adopt": adopts, "touch": touches && p.Release != "",
	}
	return e, s.Close()
}

// history draws one: what is drawn first is enumerated last.
func (e *exhaustion) history(c *fuzz.Choices, length int) []fuzz.Op {
	h := &history{e: e}
	create := map[string]any{
		"size": e.config.Size, "max_object": e.config.MaxObject, "readers": 1,
		"secret": hex.EncodeToString(e.config.Secret), "name": "s",
	}
	open := map[string]any{"size": e.config.Size, "readers": 1, "name": "s", "lock": "lock"}
	if e.generation != "" {
		create["generation"], open["generation"] = e.generation, e.generation
	}
	h.add("store.create", "w", create)
	if e.generation != "" {
		h.add("store.open", "r0", open)
	}
	for range length {
		steps := h.steps()
		steps[c.Int(len(steps))]()
	}
	return h.ops
}

// history is one under way.
type history struct {
	e       *exhaustion
	ops     []fuzz.Op
	handles []fuzz.Op // that return one
	request string    // that is open, or was committed
	sent    bool
	begun   int
}

func (h *history) add(name, store string, args map[string]any) {
	args["store"] = store
	h.ops = append(h.ops, fuzz.Op{ID: len(h.ops) + 1, Name: name, Args: args})
}

func (h *history) put(key string, n int, request string) {
	args := map[string]any{"key": key, "value": map[string]any{"type": "pickle",
		"hex": hex.EncodeToString(filled(len(h.ops), n))}}
	h.give("store.put", args, request)
}

func (h *history) give(name string, args map[string]any, request string) {
	if request != "" {
		args["request"] = request
	}
	h.add(name, "w", args)
	h.handles = append(h.handles, h.ops[len(h.ops)-1])
}

func filled(op, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(op*37 + i)
	}
	return b
}

func (h *history) use(name string, of fuzz.Op) {
	ref := func(field string, otherwise any) fuzz.Ref { return fuzz.Ref{Op: of.ID, Field: field, Else: otherwise} }
	h.add(name, "r0", map[string]any{
		"key": of.Args["key"], "address": ref("address", 0), "id": ref("id", 1<<30), "signature": ref("signature", nil),
	})
}

// steps are those that can be next.
func (h *history) steps() []func() {
	onA := func(name string) func() { return func() { h.add(name, "w", map[string]any{"key": "a"}) } }
	plain := func(name string) func() { return func() { h.add(name, "w", map[string]any{}) } }
	e := h.e
	out := []func(){
		func() { h.put("a", e.half, "") }, func() { h.put("b", e.half, "") }, func() { h.put("b", e.whole, "") },
		func() { h.give("store.lookup", map[string]any{"key": "a"}, "") },
	}
	if n := len(h.handles); n > 0 {
		out = append(out, func() { h.use("store.get", h.handles[n-1]) })
		if e.can["touch"] {
			out = append(out, func() {
				h.use("store.touch", h.handles[n-1])
			}, onA("store.touch"), plain("store.release_touches"))
		}
		if n > 1 {
			out = append(out, func() { h.use("store.get", h.handles[0]) })
		}
	}
	for _, name := range []string{"free_unused", "clear", "fence", "reset_readers", "adopt"} {
		if e.can[name] && len(h.handles) > 0 {
			out = append(out, plain("store."+name))
		}
	}
	if e.can["evict"] && len(h.handles) > 0 {
		out = append(out, onA("store.evict"))
	}
	if e.can["requests"] {
		out = append(out, h.requestSteps()...)
	}
	return out
}

func (h *history) requestSteps() []func() {
	end := func(name string) func() {
		return func() {
			h.add(name, "w", map[string]any{"request": h.request})
			if h.sent = name == "store.commit"; !h.sent {
				h.request = ""
			}
		}
	}
	switch {
	case h.request == "":
		return []func(){func() {
			h.begun++
			h.request = fmt.Sprint("q", h.begun)
			h.add("store.begin", "w", map[string]any{"request": h.request})
		}}
	case h.sent:
		return []func(){end("store.finish"), end("store.abort")}
	}
	return []func(){
		end("store.commit"), end("store.rollback"),
		func() {
			h.put("a", h.e.half, h.request)
		}, func() { h.give("store.lookup", map[string]any{"key": "a"}, h.request) },
	}
}
