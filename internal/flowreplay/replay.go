// Package flowreplay holds package kv/flow against what LMCache's connector made of the same calls. The program
// kv/flow/testdata/flows.py writes such flows.
package flowreplay

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/ringcache/ringcache/kv/flow"
)

// Flow is the calls of one scheduler, and their results.
type Flow struct {
	Options flow.Options
	Ops     []call
}

// call is a call of the scheduler, and its result.
type call struct {
	Op       string
	Request  flow.Request
	Computed int
	Asked    []int64 // of the look-up; nil if it was known
	Stored   *int    // what it found; nil if it goes on
	N        *int
	Capped   bool // LMCache's N is another one than it takes then
	External int
	First    []flow.Scheduled
	Running  []flow.Scheduled
	Metas    []step
	ID       string
}

// step is what a worker does for a request. Load and Save are nil if it copies nothing.
type step struct {
	Meta       flow.Meta
	Load, Save *flow.Transfer
}

// Check replays a flow. It returns how many calls there were, and the first difference.
func Check(text []byte) (calls int, err error) {
	var f Flow
	if err := json.Unmarshal(text, &f); err != nil {
		return 0, err
	}
	var stored *int
	var asked []int64
	s, err := flow.NewScheduler(f.Options, func(_ string, tokens []int64, _ string) (int, error) {
		asked = append([]int64{}, tokens...)
		if stored == nil {
			return 0, flow.ErrPending
		}
		return *stored, nil
	})
	if err != nil {
		return 0, err
	}
	for i, op := range f.Ops {
		var err error
		switch op.Op {
		case "matched":
			stored, asked = op.Stored, nil
			err = op.matched(s.Matched(op.Request, op.Computed))
			if err == nil && !reflect.DeepEqual(asked, op.Asked) {
				err = fmt.Errorf("looked up %v, LMCache %v", asked, op.Asked)
			}
		case "allocated":
			err = s.Allocated(op.Request, op.External)
		case "build":
			var metas []*flow.Meta
			if metas, err = s.Build(op.First, op.Running); err == nil {
				err = f.compare(metas, op.Metas)
			}
		case "finish":
			if n := s.Finish(op.ID); n != *op.N {
				err = fmt.Errorf("%d tokens were stored, LMCache %d", n, *op.N)
			}
		default:
			err = errors.New("no such call")
		}
		if err != nil {
			return i, fmt.Errorf("call %d, %s: %w", i, op.Op, err)
		}
	}
	return len(f.Ops), nil
}

// matched compares the result of Matched.
func (c call) matched(n int, err error) error {
	switch {
	case c.N != nil && err == nil && n != *c.N && !c.Capped:
		return fmt.Errorf("%d tokens, LMCache %d", n, *c.N)
	case c.N != nil:
		return err
	case errors.Is(err, flow.ErrPending):
		return nil
	}
	return fmt.Errorf("%d, %w; LMCache waits", n, err)
}

func (f *Flow) compare(metas []*flow.Meta, want []step) error {
	if len(metas) != len(want) {
		return fmt.Errorf("%d requests load or save, LMCache %d", len(metas), len(want))
	}
	for i, m := range metas {
		want[i].Load, want[i].Save = some(want[i].Load), some(want[i].Save)
		got := step{Meta: *m}
		got.Meta.Tokens, got.Meta.Slots = append([]int64{}, m.Tokens...), append([]int64{}, m.Slots...)
		if t, ok := m.ToLoad(f.Options.ChunkTokens); ok {
			got.Load = &t
		}
		if t, ok := m.ToSave(f.Options.ChunkTokens); ok {
			got.Save = &t
		}
		a, err := json.Marshal(got)
		if err != nil {
			return err
		}
		b, err := json.Marshal(want[i])
		if err != nil {
			return err
		}
		if string(a) != string(b) {
			return fmt.Errorf("%s, LMCache %s", a, b)
		}
	}
	return nil
}

// some returns nil for a transfer of nothing, which LMCache's connector asks its engine for, too.
func some(t *flow.Transfer) *flow.Transfer {
	if t != nil && t.Skip == len(t.Tokens) {
		return nil
	}
	return t
}
