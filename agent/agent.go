// Package agent drives the library by JSON lines: one request per line in, one
// reply per line out, in the same order. It is what `ringcache agent` runs, for
// scripts, other languages and differential tests; docs/agent.md lists the
// operations.
package agent

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/ringcache/ringcache/encoder"
)

// maxLine bounds one request, so that a stream without line ends can't take all
// memory. What a line makes the agent allocate is up to about eight times the line.
const maxLine = 128 << 20

// Agent holds the objects that requests made. Its methods may be called by any
// goroutine; requests are done one at a time.
type Agent struct {
	mu       sync.Mutex
	rings    map[string]*ring
	stores   map[string]*store
	lrus     map[string]*lru
	pairs    map[string]*pair
	encoders map[string]*encoder.Manager
	levels   map[string]*level
	ops      map[string]operation

	dir        string // of shared memory; empty is the system's
	maxSegment int    // bytes of one ring
	maxData    int    // bytes that the tensors of one request may ask for
}

// operation is what a line can ask for. docs/agent.md has the same fields.
// See docs/decisions.md, "The agent is strict".
type operation struct {
	fields string // their names, besides op and seq
	do     func(*params) (reply, error)
}

type reply map[string]any

// New makes an agent without objects.
func New() *Agent {
	a := &Agent{
		rings: map[string]*ring{}, stores: map[string]*store{}, lrus: map[string]*lru{}, pairs: map[string]*pair{},
		encoders: map[string]*encoder.Manager{}, levels: map[string]*level{},
		ops: map[string]operation{}, maxSegment: math.MaxInt, maxData: 256 << 20,
	}
	maps.Copy(a.ops, a.ringOps())
	maps.Copy(a.ops, a.storeOps())
	maps.Copy(a.ops, a.lruOps())
	maps.Copy(a.ops, a.pairOps())
	maps.Copy(a.ops, a.encoderOps())
	maps.Copy(a.ops, serdeOps())
	maps.Copy(a.ops, requestOps())
	maps.Copy(a.ops, hashOps())
	maps.Copy(a.ops, a.tierOps())
	return a
}

// Run answers requests until the end of in, and closes every object then. The
// error is that of reading or writing, never that of a request.
func (a *Agent) Run(in io.Reader, out io.Writer) (err error) {
	defer func() { err = errors.Join(err, a.Close()) }()
	r := bufio.NewReaderSize(in, 1<<16)
	w := bufio.NewWriter(out)
	for {
		line, tooLong, err := readLine(r)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if tooLong {
			err = encode(w, nil, failure(invalidf("a line of more than %d bytes; ask for made-up data with xof, or reserve and fill in parts", maxLine)))
		} else {
			err = a.answer(line, w)
		}
		if err != nil {
			return err
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
}

// readLine returns the next line without its end. Of one that is too long it
// reads everything and keeps nothing.
func readLine(r *bufio.Reader) (line []byte, tooLong bool, err error) {
	var parts [][]byte // joined at the end: a slice that grows would be copied again and again
	n := 0
	for {
		part, err := r.ReadSlice('\n')
		if n += len(part); n > maxLine {
			tooLong, parts = true, nil
		} else {
			parts = append(parts, bytes.Clone(part))
		}
		switch {
		case err == nil, err == io.EOF && n > 0:
			if len(parts) == 1 {
				return parts[0], tooLong, nil
			}
			return bytes.Join(parts, nil), tooLong, nil
		case err != bufio.ErrBufferFull:
			return nil, false, err
		}
	}
}

// Do answers one request. It does not panic, whatever the request.
func (a *Agent) Do(line []byte) []byte {
	var b bytes.Buffer
	_ = a.answer(line, &b) // a buffer does not fail
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// answer writes the reply to one request. The error is that of writing.
func (a *Agent) answer(line []byte, w io.Writer) (err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p, err := parseParams(line)
	if err != nil {
		return encode(w, nil, failure(err))
	}
	seq := p.fields["seq"]
	if checkText(seq) != nil {
		seq = nil // the reply would be no JSON
	}
	defer func() {
		switch x := recover().(type) {
		case nil:
		case refusal:
			err = encode(w, seq, failure(x.error))
		default:
			err = encode(w, seq, failure(invalidf("internal error, please report it: %v", x)))
		}
	}()
	p.budget = a.maxData
	out, err := a.perform(p, line)
	if err != nil {
		return encode(w, seq, failure(err))
	}
	return encode(w, seq, out)
}

// perform does what a line asks for and returns the reply.
func (a *Agent) perform(p *params, line []byte) (reply, error) {
	if err := checkText(line); err != nil {
		return nil, invalidf("%w", err)
	}
	p.known = []string{"op"}
	name := p.str("op")
	op, ok := a.ops[name]
	if !ok {
		p.fail("unknown op %q", name)
	}
	p.allow(strings.Fields(op.fields)...)
	fields, err := op.do(p)
	if err != nil {
		return nil, err
	}
	out := reply{"ok": true}
	maps.Copy(out, fields)
	return out, nil
}

// on makes an operation on the object of a table that the field kind names.
func on[T any](kind string, objects map[string]T, f func(*params, T) (reply, error)) func(*params) (reply, error) {
	return func(p *params) (reply, error) { return f(p, named(p, kind, objects)) }
}

// named returns the object that the field kind names.
func named[T any](p *params, kind string, objects map[string]T) T {
	name := p.str(kind)
	object, ok := objects[name]
	if !ok {
		p.fail("no %s %q", kind, name)
	}
	return object
}

// unused returns the field kind, the name of an object that is made.
func unused[T any](p *params, kind string, objects map[string]T) string {
	name := p.str(kind)
	if _, ok := objects[name]; ok {
		p.fail("%s %q exists", kind, name)
	}
	return name
}

// forget makes an operation that forgets an object of a table.
func forget[T any](kind string, objects map[string]T) func(*params) (reply, error) {
	return on(kind, objects, func(p *params, _ T) (reply, error) { delete(objects, p.str(kind)); return nil, nil })
}

// Ops returns the names of all operations.
func (a *Agent) Ops() []string { return slices.Sorted(maps.Keys(a.ops)) }

// Close closes every object, and removes the segments that the agent made.
func (a *Agent) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var errs []error
	for _, r := range a.rings {
		errs = append(errs, r.close())
	}
	for _, s := range a.stores {
		errs = append(errs, s.close())
	}
	errs = append(errs, a.closeTiers())
	clear(a.rings)
	clear(a.stores)
	clear(a.lrus)
	clear(a.pairs)
	clear(a.encoders)
	return errors.Join(errs...)
}

func failure(err error) reply {
	out := reply{"ok": false, "error": describeError(err)}
	if keys := missedKeys(err); keys != nil {
		out["hashes"] = keys
	}
	return out
}

// encode writes a reply as one line.
func encode(w io.Writer, seq rawJSON, out reply) error {
	if seq != nil {
		out["seq"] = seq
	}
	err := json.NewEncoder(w).Encode(out)
	var unsupported *json.UnsupportedValueError
	var marshaler *json.MarshalerError
	if errors.As(err, &unsupported) || errors.As(err, &marshaler) { // nothing was written; it would be our bug
		_, err = fmt.Fprintf(w, `{"error":{"kind":"invalid","text":%q},"ok":false}`+"\n", err.Error())
	}
	return err
}
