package system

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/ringrules"
)

// Rings tests the rings of one system by what holds for any correct ring (package ringrules),
// wherever the system places chunks. Beside the operations of a ring that [Differential] compares, the
// system needs ring.fill and ring.peek; ring.header is not asked for.
type Rings struct {
	// Start starts the system, again after it broke. Run and Replay close what they started.
	Start func(context.Context) (fuzz.System, error)
	// Options say what is tested; Ops is 10000 and Length 200 if 0.
	Options ringrules.Options

	Until time.Time // no sequence begins later; the zero time is never
	// Repeat returns the command that generates the sequence of a seed again; may be nil.
	Repeat func(seed uint64) string
	// Progress, if not nil, is called after each sequence.
	Progress func(Result)
}

// Run tests until an invariant is broken, or until enough was tested. The error is that of the options, of a
// system that can't be started or takes nothing, or of ctx.
func (r Rings) Run(ctx context.Context) (result Result, err error) {
	if r.Options.Ops == 0 {
		r.Options.Ops = 10000
	}
	if r.Options.Length == 0 {
		r.Options.Length = 200
	}
	m, err := r.maker(ctx)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = m.end(err, result.Failure) }()
	result = Result{First: r.Options.Seed, Last: r.Options.Seed}
	generate := m.plan.Generate()
	for seed := r.Options.Seed; result.Ops < r.Options.Ops && (r.Until.IsZero() || time.Now().Before(r.Until)); seed++ {
		ops := generate(fuzz.FromSeed(seed), r.Options.Length)
		f := m.test(ops)
		if err := errors.Join(m.system.startErr, ctx.Err()); err != nil {
			return result, err
		}
		result.Last = seed
		if f != nil {
			f.Found = len(ops)
			if !errors.Is(f.Err, ErrHangs) { // each try would take the limit
				f = fuzz.Shrink(ops, f, m.test)
			}
			f.Seed, f.Seeded = seed, true
			if r.Repeat != nil {
				f.Repeat = r.Repeat(seed)
			}
			result.Failure = f
			return result, ctx.Err()
		}
		result.Ops += len(ops)
		result.Sequences++
		if r.Progress != nil {
			r.Progress(result)
		}
	}
	return result, m.tested()
}

// Replay tests by the operations that a failure has.
func (r Rings) Replay(ctx context.Context, ops []fuzz.Op) (failure *fuzz.Failure, err error) {
	m, err := r.maker(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = m.end(err, failure) }()
	failure = m.test(ops)
	if err := errors.Join(m.system.startErr, ctx.Err()); err != nil {
		return nil, err
	}
	if failure != nil {
		failure.Found = len(ops)
		return failure, nil
	}
	return nil, m.tested()
}

func (r Rings) maker(ctx context.Context) (*ringMaker, error) {
	m := &ringMaker{ctx: ctx, system: &restarting{start: r.Start}}
	var err error
	m.plan, err = ringrules.NewPlan(m.make, r.Options)
	return m, err
}

// ringMaker makes rings of a system for ringrules.
type ringMaker struct {
	ctx    context.Context
	system *restarting
	plan   *ringrules.Plan

	names     int
	open      []fuzz.Op // that close the rings which the sequence made
	allocated int       // chunks ever
	refused   string    // the last reply to a ring.new without a ring
}

// test performs a sequence and closes its rings.
func (m *ringMaker) test(ops []fuzz.Op) *fuzz.Failure {
	f := m.plan.Run(ops)
	closing := m.open
	m.open = nil
	if m.system.system == nil {
		return f // it broke
	}
	if _, err := m.system.Do(closing); err != nil && f == nil {
		f = broken("ring.close", err)
		f.Ops = ops
	}
	return f
}

// tested returns why a run without a failure proves nothing.
func (m *ringMaker) tested() error {
	switch {
	case m.plan.Rings() == 0 && m.refused != "":
		return fmt.Errorf("no ring was made: ring.new was answered with %s", m.refused)
	case m.allocated == 0:
		return errors.New("nothing was tested: no chunk was allocated")
	}
	return nil
}

func (m *ringMaker) end(err error, f *fuzz.Failure) error {
	closing := m.system.Close()
	if f != nil {
		closing = nil // a system that fails may well end badly, and the failure explains why
	}
	return errors.Join(err, closing)
}

// broken is the failure of a system that gives no answer, or none that can be used.
func broken(op string, err error) *fuzz.Failure {
	return &fuzz.Failure{
		Invariant: "broken", Err: fmt.Errorf("%s: %w", op, err),
		Why: "every line is answered by one line as docs/agent.md has it; what can't be done is an error of the kind full or invalid",
	}
}

// make is a ringrules.New. The ring is nil if the system refuses it or is not there.
func (m *ringMaker) make(size int, firstID uint32) ringrules.Ring {
	if m.system.system == nil && m.system.started > maxRestarts || m.system.ready(m.ctx) != nil {
		return nil
	}
	m.names++
	r := &remoteRing{m: m, name: "r" + strconv.Itoa(m.names), memory: make([]byte, size), sizes: map[uint32]int{}}
	args := map[string]any{"size": size}
	if firstID != 0 {
		args["first_id"] = int64(firstID)
	}
	if reply := r.do("new", args); reply.Kind != "" {
		m.refused = reply.String()
		return nil
	}
	m.open = append(m.open, r.op("close", nil))
	r.look()
	return r
}

// remoteRing is a ring of a system. It panics with a failure where the system breaks, which ends the
// sequence.
type remoteRing struct {
	m      *ringMaker
	name   string
	memory []byte // as the system's was after the last operation
	state  ringrules.State
	live   map[uint32]uint64
	sizes  map[uint32]int // of payloads by id
}

func (r *remoteRing) op(verb string, args map[string]any) fuzz.Op {
	all := map[string]any{"ring": r.name}
	for name, v := range args {
		all[name] = v
	}
	return fuzz.Op{Name: "ring." + verb, Args: all}
}

func (r *remoteRing) send(ops ...fuzz.Op) []fuzz.Reply {
	replies, err := r.m.system.Do(ops)
	if err == nil && len(replies) != len(ops) {
		err = fmt.Errorf("%d replies to %d operations", len(replies), len(ops))
	}
	if err != nil {
		panic(broken(ops[min(len(replies), len(ops)-1)].Name, err))
	}
	return replies
}

func (r *remoteRing) do(verb string, args map[string]any) fuzz.Reply {
	return r.send(r.op(verb, args))[0]
}

// look reads the position, what is live, and the memory.
func (r *remoteRing) look() {
	replies := r.send(r.op("state", nil), r.op("peek", map[string]any{"offset": 0, "length": len(r.memory)}))
	state, peek := r.performed("ring.state", replies[0]), r.performed("ring.peek", replies[1])
	r.state = ringrules.State{IDStart: id("ring.state", "id_start", state["id_start"]),
		IDEnd: id("ring.state", "id_end", state["id_end"])}
	start, _ := state["start"].(int64) // where a ring has none, it stays 0
	end, _ := state["end"].(int64)
	r.state.Start, r.state.End = uint64(start), uint64(end)
	metadata, ok := state["metadata"].(map[string]any)
	if !ok {
		panic(broken("ring.state", errors.New(`the field "metadata" is no object`)))
	}
	r.live = map[uint32]uint64{}
	for name, address := range metadata {
		n, err := strconv.ParseUint(name, 10, 32)
		if err != nil {
			panic(broken("ring.state", fmt.Errorf("metadata: %w", err)))
		}
		r.live[uint32(n)] = uint64(number("ring.state", "metadata."+name, address, math.MaxInt64))
	}
	text, _ := peek["hex"].(string)
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(r.memory) {
		panic(broken("ring.peek", fmt.Errorf("%d bytes were asked for, and %d came as hex (%w)", len(r.memory),
			len(b), err)))
	}
	copy(r.memory, b)
}

// performed returns the fields of a reply to what can't be refused.
func (r *remoteRing) performed(op string, reply fuzz.Reply) map[string]any {
	if reply.Kind != "" {
		panic(broken(op, errors.New(reply.String())))
	}
	return reply.Fields
}

// number returns a field's value.
func number(op, field string, v any, most int64) int64 {
	n, ok := v.(int64)
	if !ok || n < 0 || n > most {
		panic(broken(op, fmt.Errorf("the field %q is %s: answer a whole number from 0 to %d, without a point", field,
			asWritten(v), most)))
	}
	return n
}

func id(op, field string, v any) uint32 { return uint32(number(op, field, v, math.MaxUint32)) }

// asWritten returns a value of a reply as JSON has it.
func asWritten(v any) string {
	if v == nil {
		return "missing"
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	if _, ok := v.(float64); ok && !strings.ContainsAny(string(b), ".e") {
		return string(b) + ".0" // that it has a point is what is wrong with it
	}
	return string(b)
}

func (r *remoteRing) Alloc(size int) (address uint64, chunk uint32, err error) {
	reply := r.do("alloc", map[string]any{"size": size})
	if reply.Kind != "" {
		if size > 0 && size <= len(r.memory) && reply.Kind != "full" {
			panic(broken("ring.alloc", errors.New(reply.String())))
		}
		r.look()
		return 0, 0, errors.New(reply.String())
	}
	address, chunk = uint64(number("ring.alloc", "address", reply.Fields["address"], math.MaxInt64)),
		id("ring.alloc", "id", reply.Fields["id"])
	r.m.allocated++
	r.sizes[chunk] = size
	r.look()
	return address, chunk, nil
}

func (r *remoteRing) Free(ids []uint32) (freed []uint32) {
	list := make([]any, len(ids))
	for i, id := range ids {
		list[i] = int64(id)
	}
	fields := r.performed("ring.free", r.do("free", map[string]any{"ids": list}))
	names, ok := fields["freed"].([]any)
	if !ok {
		panic(broken("ring.free", errors.New(`the field "freed" is no list`)))
	}
	for _, v := range names {
		freed = append(freed, id("ring.free", "freed", v))
	}
	r.look()
	return freed
}

func (r *remoteRing) Clear() {
	r.performed("ring.clear", r.do("clear", nil))
	r.look()
}

// Publish writes the payload, which the test has filled here, to the system's memory.
func (r *remoteRing) Publish(id uint32) {
	c := ringrules.Chunk{Address: r.live[id], ID: id, Size: r.sizes[id]}
	if _, there := r.live[id]; !there {
		return // the invariant live reports it
	}
	begin, end := c.Offset(len(r.memory))+ringrules.HeaderSize, c.End(len(r.memory))
	if end > len(r.memory) {
		return // another address than Alloc's: live reports it, too
	}
	r.performed("ring.fill", r.do("fill", map[string]any{"offset": begin,
		"hex": hex.EncodeToString(r.memory[begin:end])}))
	r.look()
}

func (r *remoteRing) Live() map[uint32]uint64 { return r.live }
func (r *remoteRing) State() ringrules.State  { return r.state }
func (r *remoteRing) Bytes() []byte           { return r.memory }
