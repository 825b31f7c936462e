package storetest

import "fmt"

// countsRight compares with the world after the operation: the step is that of an operation which
// the world does not contain yet, so it looks at what changed.
func countsRight(s Step) error {
	if s.Op.Name == "store.adopt" || s.Op.Name == "store.reset_readers" || s.Op.Name == "store.clear" || !s.ok() {
		return nil
	}
	key, _ := s.Op.Args["key"].(string)
	read := s.w.objects[placeOf(handleOf(s.Op))]
	id, _ := s.Op.Args["request"].(string)
	for _, o := range s.After.Objects {
		was := s.Before.find(o.Key)
		if was == nil {
			was = &Object{}
		}
		uses, reads := was.Uses, was.Reads
		switch {
		case (s.Op.Name == "store.put" || s.Op.Name == "store.lookup") && o.Key == key:
			uses++
		case s.Op.Name == "store.get" && read != nil && placeOf(read.handle) == placeOf(o.Handle):
			reads++
		case s.Op.Name == "store.rollback" && s.w.requests[id] != nil:
			uses -= s.w.requests[id].uses[s.w.live[o.Key]]
		}
		if o.Uses >= 0 && o.Uses != uses || o.Reads >= 0 && o.Reads != reads {
			return fmt.Errorf("%q has %d uses and %d reads, want %d and %d", o.Key, o.Uses, o.Reads, uses, reads)
		}
	}
	return nil
}
