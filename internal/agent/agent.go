// Package agent drives the library by JSON lines: one request per line in, one
// reply per line out, in the same order. It is what `ringcache agent` runs, for
// scripts, other languages and differential tests; docs/agent.md lists the
// operations.
package agent

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"sync"
)

// maxLine bounds one request, so that a stream without line ends can't take all
// memory.
const maxLine = 256 << 20

// Agent holds the objects that requests made. Its methods may be called by any
// goroutine; requests are done one at a time.
type Agent struct {
	mu     sync.Mutex
	rings  map[string]*ring
	stores map[string]*store
	lrus   map[string]*lru
	pairs  map[string]*pair
	ops    map[string]operation

	dir        string // of shared memory; empty is the system's
	maxSegment int    // bytes of one ring
	maxData    int    // bytes that the tensors of one request may ask for
}

// operation performs one request and returns the fields of its reply.
type operation func(*params) (reply, error)

type reply map[string]any

// New makes an agent without objects.
func New() *Agent {
	a := &Agent{
		rings: map[string]*ring{}, stores: map[string]*store{}, lrus: map[string]*lru{}, pairs: map[string]*pair{},
		ops: map[string]operation{}, maxSegment: math.MaxInt, maxData: 256 << 20,
	}
	maps.Copy(a.ops, a.ringOps())
	maps.Copy(a.ops, a.storeOps())
	maps.Copy(a.ops, a.lruOps())
	maps.Copy(a.ops, a.pairOps())
	maps.Copy(a.ops, serdeOps())
	maps.Copy(a.ops, requestOps())
	maps.Copy(a.ops, hashOps())
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
		var answer []byte
		if tooLong {
			answer = failure(nil, invalidf("a line of more than %d bytes", maxLine))
		} else {
			answer = a.Do(line)
		}
		if _, err := w.Write(append(answer, '\n')); err != nil {
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
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > maxLine {
			tooLong, line = true, nil
		}
		if !tooLong {
			line = append(line, part...)
		}
		switch {
		case err == nil, err == io.EOF && (len(line) > 0 || tooLong):
			return line, tooLong, nil
		case err != bufio.ErrBufferFull:
			return nil, false, err
		}
	}
}

// Do answers one request. It does not panic, whatever the request.
func (a *Agent) Do(line []byte) (answer []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p, err := parseParams(line)
	if err != nil {
		return failure(nil, err)
	}
	p.budget = a.maxData
	seq := p.fields["seq"]
	defer func() {
		if x := recover(); x != nil {
			answer = failure(seq, invalidf("internal error, please report it: %v", x))
		}
	}()
	name := p.str("op")
	op, ok := a.ops[name]
	if p.err == nil && !ok {
		p.fail("unknown op %q", name)
	}
	if p.err != nil {
		return failure(seq, p.err)
	}
	fields, err := op(p)
	if err == nil {
		err = p.err
	}
	if err != nil {
		return failure(seq, err)
	}
	return success(seq, fields)
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
	clear(a.rings)
	clear(a.stores)
	clear(a.lrus)
	clear(a.pairs)
	return errors.Join(errs...)
}

func success(seq json.RawMessage, fields reply) []byte {
	out := reply{"ok": true}
	maps.Copy(out, fields)
	return marshal(seq, out)
}

func failure(seq json.RawMessage, err error) []byte {
	out := reply{"ok": false, "error": describeError(err)}
	if keys := missedKeys(err); keys != nil {
		out["hashes"] = keys
	}
	return marshal(seq, out)
}

func marshal(seq json.RawMessage, out reply) []byte {
	if seq != nil {
		out["seq"] = seq
	}
	b, err := json.Marshal(out)
	if err != nil { // only a value that JSON can't say, which would be our bug
		return fmt.Appendf(nil, `{"error":{"kind":"invalid","text":%q},"ok":false}`, err.Error())
	}
	return b
}
