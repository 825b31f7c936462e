package fuzz

import (
	"bytes"
	"fmt"
)

// System performs operations.
type System interface {
	// Do performs operations in order and returns the reply to each. They contain no Refs. An
	// error means that the system broke: it died, or its answer is no reply.
	Do(ops []Op) ([]Reply, error)
	// Close ends the system and removes what it made.
	Close() error
}

// Reply is the answer to an operation.
type Reply struct {
	// Kind is that of the error (docs/agent.md), "" if the operation was performed.
	Kind string
	// Text explains the error; Upstream is vLLM's own text for it, if there is one.
	Text, Upstream string
	// Fields are those of the reply besides ok, seq and error: values that encoding/json writes.
	Fields map[string]any
}

// ParseReply reads a line that a system answered.
func ParseReply(line []byte) (Reply, error) {
	var m map[string]any
	if err := decode(line, &m); err != nil {
		return Reply{}, fmt.Errorf("fuzz: %.200q is no reply: %w", line, err)
	}
	ok, isBool := m["ok"].(bool)
	if !isBool {
		return Reply{}, fmt.Errorf("fuzz: %.200q is no reply: the field ok is missing", line)
	}
	r := Reply{Fields: m}
	if !ok {
		e, _ := m["error"].(map[string]any)
		r.Kind, _ = e["kind"].(string)
		r.Text, _ = e["text"].(string)
		r.Upstream, _ = e["upstream"].(string)
		if r.Kind == "" {
			return Reply{}, fmt.Errorf("fuzz: %.200q is no reply: a failure without error.kind", line)
		}
	}
	delete(m, "ok")
	delete(m, "seq")
	delete(m, "error")
	return r, nil
}

// String returns the reply as JSON.
func (r Reply) String() string {
	if r.Kind != "" {
		return fmt.Sprintf("%s: %s", r.Kind, r.Text)
	}
	text, err := marshal(r.Fields)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Equal reports whether a field has the same JSON in both replies.
func (r Reply) Equal(other Reply, field string) bool {
	a, errA := marshal(r.Fields[field])
	b, errB := marshal(other.Fields[field])
	return errA == nil && errB == nil && bytes.Equal(a, b)
}

// Run performs a sequence, each operation with what earlier replies contained. It returns the
// operations without Refs, and the reply to each.
func Run(s System, ops []Op) (resolved []Op, replies []Reply, err error) {
	byID := map[int]Reply{}
	for _, op := range ops {
		op = op.Resolve(byID)
		r, err := s.Do([]Op{op})
		if err != nil {
			return append(resolved, op), replies, fmt.Errorf("%s: %w", op.Line(), err)
		}
		if len(r) != 1 {
			return append(resolved, op), replies, fmt.Errorf("%s: %d replies", op.Line(), len(r))
		}
		if op.ID != 0 {
			byID[op.ID] = r[0]
		}
		resolved, replies = append(resolved, op), append(replies, r[0])
	}
	return resolved, replies, nil
}

// Difference is an operation to which two systems replied differently.
type Difference struct {
	Index     int // in the sequence
	Op        Op
	Want, Got Reply
	What      string // what differs
}

// Error has the operation, and the state of both systems after it.
func (d *Difference) Error() string {
	return fmt.Sprintf("operation %d, %s: %s\n  the first system:  %s\n  the second system: %s", d.Index, d.Op.Line(),
		d.What, d.Want, d.Got)
}

// Compare performs a sequence with one system and then, with the handles and ids of the first,
// with another. same reports how two replies to an operation differ, "" if they agree. An error
// is that of a system which broke.
func Compare(first, second System, ops []Op, same func(op Op, want, got Reply) string) (*Difference, error) {
	resolved, want, err := Run(first, ops)
	if err != nil {
		return nil, fmt.Errorf("the first system: %w", err)
	}
	got, err := second.Do(resolved)
	if err != nil {
		return nil, fmt.Errorf("the second system: %w", err)
	}
	if len(got) != len(want) {
		return nil, fmt.Errorf("the second system: %d replies to %d operations", len(got), len(want))
	}
	for i, op := range resolved {
		if what := same(op, want[i], got[i]); what != "" {
			return &Difference{Index: i, Op: op, Want: want[i], Got: got[i], What: what}, nil
		}
	}
	return nil, nil
}
