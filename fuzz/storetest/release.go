package storetest

import (
	"fmt"
	"strconv"

	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/model"
)

// testRelease performs a sequence and compares the store with the model of vLLM's. done are the
// operations performed.
func (p *plan) testRelease(s *system, ops []fuzz.Op, done *[]fuzz.Op) *fuzz.Failure {
	release := p.release
	release.PhantomStart = false // a defect of the ring, which is not to be repeated
	m := model.NewStore(release, model.StoreOptions{RefuseStaleTouch: true})
	replies := map[int]fuzz.Reply{}
	for _, op := range ops {
		op = op.Resolve(replies)
		*done = append(*done, op)
		want, err := m.Do([]fuzz.Op{op})
		if err != nil {
			return broken(err)
		}
		if op.ID != 0 {
			replies[op.ID] = want[0]
		}
		switch want[0].Kind {
		case "invalid", "unsupported", "closed": // only when the sequence is minimized
			continue
		}
		got := s.do(op)
		if got.Kind == skipped {
			continue
		}
		if err := sameAsModel(op, want[0], got); err != nil {
			return difference(err)
		}
		if err := s.sameState(m, op); err != nil {
			return difference(err)
		}
		if c, ok := s.store.(Checker); ok {
			if err := c.CheckStructure(); err != nil {
				return &fuzz.Failure{Invariant: "structure", Why: structureWhy, Err: err}
			}
		}
	}
	return nil
}

func difference(err error) *fuzz.Failure {
	return &fuzz.Failure{
		Invariant: "same-as-vllm", Err: err,
		Why: "A store that replaces vLLM's must place, count and free as it does, or readers and writers of both don't agree.",
	}
}

func sameAsModel(op fuzz.Op, want, got fuzz.Reply) error {
	failed := (want.Kind == "") != (got.Kind == "")
	handle := op.Name == "store.put" || op.Name == "store.lookup"
	switch {
	case failed, handle && want.Kind != got.Kind:
		return fmt.Errorf("vLLM: %s; the store: %s", want, got)
	case want.Kind != "":
		return nil
	case handle:
		for _, field := range []string{"address", "id", "signature"} {
			if !want.Equal(got, field) {
				return fmt.Errorf("%s: vLLM: %s; the store: %s", field, want, got)
			}
		}
	case op.Name == "store.get":
		value, _ := want.Fields["value"].(map[string]any)
		if value["hex"] != got.Fields["value"] {
			return fmt.Errorf("vLLM shows %v; the store %v", value["hex"], got.Fields["value"])
		}
	}
	return nil
}

// sameState compares what is in the store with what is in the model's.
func (s *system) sameState(m *model.Store, op fuzz.Op) error {
	if s.store == nil {
		return nil
	}
	state, err := s.store.State()
	if err != nil {
		return err
	}
	r, err := m.Do([]fuzz.Op{{Name: "store.state", Args: map[string]any{"store": "w"}}})
	if err != nil || r[0].Kind != "" {
		return fmt.Errorf("the model has no state: %w: %s", err, r[0])
	}
	index, _ := r[0].Fields["key_index"].(map[string]any)
	uses, _ := r[0].Fields["writer_flag"].(map[string]any)
	reads, _ := r[0].Fields["reader_flag"].(map[string]any)
	if len(index) != len(state.Objects) {
		return fmt.Errorf("after %s vLLM has %d objects, the store %d", op.Name, len(index), len(state.Objects))
	}
	for _, o := range state.Objects {
		id := strconv.FormatUint(o.Handle.ID, 10)
		want, got := fmt.Sprint(index[o.Key]), fmt.Sprint([]uint64{o.Handle.Address, o.Handle.ID})
		if want != got {
			return fmt.Errorf("after %s %q is at %s in vLLM, and at %s in the store", op.Name, o.Key, want, got)
		}
		want, got = fmt.Sprint(uses[id], reads[id]), fmt.Sprint(o.Uses, o.Reads)
		if o.Uses >= 0 && want != got {
			return fmt.Errorf("after %s %q has uses and reads %s in vLLM, and %s in the store", op.Name, o.Key, want,
				got)
		}
	}
	return nil
}
