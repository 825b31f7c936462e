package storetest

import (
	"fmt"

	"github.com/ringcache/ringcache/fuzz"
)

// Step is one operation, as an invariant sees it.
type Step struct {
	Op            fuzz.Op // without Refs
	Reply         fuzz.Reply
	Before, After State

	w       *world // before the operation
	largest int    // the largest value that fits into an empty store
	open    bool   // the operation did not end the store
	// end, at the end of a sequence, puts the largest object into the store. No operation led there.
	end func() error
}

// Invariants returns what must hold after every operation, and nothing-stays, which is checked at
// the end of a sequence. Two more have their own switches: structure, for a store that is a
// [Checker], and same-as-vllm, for [Options].Release.
func Invariants() []fuzz.Invariant[Step] {
	return []fuzz.Invariant[Step]{ // the first one that is broken is reported
		{
			Name: "ids-never-reused", Holds: idsNeverReused,
			Why: "A stale handle is noticed by its id. If the id comes again, also after clear, an old handle shows a new object.",
		},
		{
			Name: "rollback-exact", Holds: rollbackExact,
			Why: "Handles of a request that was rolled back were never sent. A use that is left keeps the object for ever; one too many taken back lets it go under a reader.",
		},
		{
			Name: "protected-stays", Holds: protectedStays,
			Why: "A reader will come with a handle of an object that a request has, or that was not read by all. In vLLM a worker that finds it gone ends the engine.",
		},
		{
			Name: "own-bytes", Holds: ownBytes,
			Why: "A handle may fail, but what it leads to must be what was stored under it: other bytes are another user's picture.",
		},
		{
			Name: "forged-noticed", Holds: forgedNoticed,
			Why: "A handle that was never given out, or was altered, must not give access to an object.",
		},
		{
			Name: "keys-unique", Holds: keysUnique,
			Why: "With two objects under a key, requests for one picture get two, and one of them is never found again.",
		},
		{
			Name: "refused-changes-nothing", Holds: refusedChangesNothing,
			Why: "The caller of a refused operation goes on as if it had never been: a key or a use that it leaves would stay for ever.",
		},
		{
			Name: "counts", Holds: countsRight,
			Why: "Reads are compared with uses. One use too many keeps the object for ever, one too few lets it go under a reader.",
		},
		{
			Name: "full-needs-a-reason", Holds: fullNeedsAReason,
			Why: "A store that stays full of objects that are not needed is no cache: every image is sent inline.",
		},
		{
			Name: "free-can-go", Holds: freeCanGo,
			Why: "An object that is not needed and can't be evicted occupies its room for ever.",
		},
		{
			Name: "adopted", Holds: adopted,
			Why: "What was stored before a crash is there afterwards or is reported as dropped; else the segment can't be trusted.",
		},
		{
			Name: nothingStays, Holds: nothingStaysAtEnd,
			Why: "When all requests have ended and all readers are done, every object can go, and the largest fits again. Else the store fills up for ever.",
		},
	}
}

// nothingStays is checked after everything has ended.
const nothingStays = "nothing-stays"

func nothingStaysAtEnd(s Step) error {
	if s.end == nil {
		return nil
	}
	return s.end()
}

func (s Step) ok() bool { return s.Reply.Kind == "" }

func (s State) find(key string) *Object {
	for i := range s.Objects {
		if s.Objects[i].Key == key {
			return &s.Objects[i]
		}
	}
	return nil
}

func rollbackExact(s Step) error {
	id, _ := s.Op.Args["request"].(string)
	r := s.w.requests[id]
	if s.Op.Name != "store.rollback" || !s.ok() || r == nil {
		return nil
	}
	for o, uses := range r.uses {
		after := s.After.find(o.key)
		if after != nil && after.Uses >= 0 && after.Uses != o.uses-uses {
			return fmt.Errorf("%q has %d uses, and had %d before the request", o.key, after.Uses, o.uses-uses)
		}
	}
	return nil
}

func protectedStays(s Step) error {
	if !s.open {
		return nil
	}
	switch s.Op.Name {
	case "store.clear", "store.adopt", "store.reset_readers":
		if s.ok() {
			return nil // they end what protects; adopted looks at the rest
		}
	case "store.get":
		return readable(s)
	}
	for _, o := range s.w.live {
		there := s.After.find(o.key)
		if (there == nil || placeOf(there.Handle) != placeOf(o.handle)) && s.w.needs(o) && !s.ends(o) {
			return fmt.Errorf("%q at %d:%d is gone, and %s", o.key, o.handle.Address, o.handle.ID, s.w.reason(o))
		}
	}
	return nil
}

// ends reports whether the operation may have ended what protects an object.
func (s Step) ends(o *object) bool {
	id, _ := s.Op.Args["request"].(string)
	switch s.Op.Name {
	case "store.rollback", "store.finish", "store.abort":
		r := s.w.requests[id]
		return r != nil && r.uses[o] > 0
	case "store.fence":
		return o.leases == 0
	}
	return false
}

func (w *world) reason(o *object) string {
	if o.leases > 0 {
		return fmt.Sprintf("%d requests have it", o.leases)
	}
	return fmt.Sprintf("it was read %d times of %d", o.reads+o.off, o.uses*w.readers)
}

// readable: who has a handle of an object that must stay gets its bytes.
func readable(s Step) error {
	key, _ := s.Op.Args["key"].(string)
	o, ok := s.w.genuine(key, handleOf(s.Op))
	if !ok || s.ok() || s.Reply.Kind == skipped || s.w.live[o.key] != o || !s.w.needs(o) {
		return nil
	}
	return fmt.Errorf("%q can't be read, and %s: %s", o.key, s.w.reason(o), s.Reply)
}

func ownBytes(s Step) error {
	if s.Op.Name == "store.get" && s.ok() {
		text, _ := s.Reply.Fields["value"].(string)
		value, _ := valueOf(fuzz.Op{Args: map[string]any{"value": map[string]any{"hex": text}}})
		if o := s.w.objects[placeOf(handleOf(s.Op))]; o != nil && !o.same(value) {
			return fmt.Errorf("the handle of %q leads to other bytes: %d that begin with %.16x, want %d that begin with %.16x",
				o.key, len(value), value, len(o.value), o.value)
		}
	}
	for _, there := range s.After.Objects {
		o := s.w.objects[placeOf(there.Handle)]
		if o != nil && there.Value != nil && !o.same(there.Value) {
			return fmt.Errorf("under %q are other bytes than were stored", there.Key)
		}
	}
	return nil
}

func forgedNoticed(s Step) error {
	if s.Op.Name != "store.get" || !s.ok() {
		return nil
	}
	key, _ := s.Op.Args["key"].(string)
	switch o, ok := s.w.genuine(key, handleOf(s.Op)); {
	case o == nil:
		return fmt.Errorf("a handle that was never given out shows %s", s.Reply)
	case !ok:
		return fmt.Errorf("a handle of %q that was altered, or came with the key %q, shows it", o.key, key)
	}
	return nil
}

func keysUnique(s Step) error {
	seen := map[string]bool{}
	for _, o := range s.After.Objects {
		if seen[o.Key] {
			return fmt.Errorf("%q is there twice", o.Key)
		}
		seen[o.Key] = true
	}
	if s.Op.Name != "store.put" && s.Op.Name != "store.lookup" {
		return nil
	}
	key, _ := s.Op.Args["key"].(string)
	before, after := s.Before.find(key), s.After.find(key)
	switch {
	case s.ok() && (after == nil || placeOf(after.Handle) != placeOf(replied(s.Reply))):
		return fmt.Errorf("the handle that was returned is not that of %q", key)
	case s.Op.Name == "store.put" && s.ok() && before != nil:
		return fmt.Errorf("%q was there, and was put once more", key)
	case s.Op.Name == "store.put" && s.Reply.Kind == "exists" && before == nil:
		return fmt.Errorf("%q was not there, and put reports that it exists", key)
	case s.Op.Name == "store.lookup" && s.ok() && before == nil:
		return fmt.Errorf("%q was not there, and was found", key)
	case s.Reply.Kind == "not_found" && before != nil:
		return fmt.Errorf("%q is there, and was not found", key)
	}
	return nil
}

// refusedChangesNothing: a put that finds no room may have evicted objects that are not needed.
func refusedChangesNothing(s Step) error {
	if s.ok() || s.Reply.Kind == skipped || !s.open {
		return nil
	}
	for _, o := range s.After.Objects {
		was := s.Before.find(o.Key)
		switch {
		case was == nil || placeOf(was.Handle) != placeOf(o.Handle):
			return fmt.Errorf("%s was refused (%s), and %q is there now", s.Op.Name, s.Reply.Kind, o.Key)
		case was.Uses != o.Uses || was.Reads != o.Reads:
			return fmt.Errorf("%s was refused (%s), and %q has %d uses and %d reads, before %d and %d", s.Op.Name,
				s.Reply.Kind, o.Key, o.Uses, o.Reads, was.Uses, was.Reads)
		}
	}
	if s.Op.Name != "store.put" && len(s.Before.Objects) != len(s.After.Objects) {
		return fmt.Errorf("%s was refused (%s), and an object went", s.Op.Name, s.Reply.Kind)
	}
	return nil
}

func idsNeverReused(s Step) error {
	if s.Op.Name != "store.put" || !s.ok() {
		return nil
	}
	h := replied(s.Reply)
	if o := s.w.ids[h.ID]; o != nil {
		return fmt.Errorf("id %d was that of an object under %q", h.ID, o.key)
	}
	return nil
}

func fullNeedsAReason(s Step) error {
	value, isPut := valueOf(s.Op)
	if s.Op.Name != "store.put" || !isPut || s.Reply.Kind != "full" && s.Reply.Kind != "too_large" ||
		len(value) > s.largest {
		return nil
	}
	if s.Reply.Kind == "too_large" {
		return fmt.Errorf("%d bytes are too large, and %d fit into an empty store", len(value), s.largest)
	}
	for o := range s.w.all() {
		if !s.w.free(o) {
			return nil
		}
	}
	return fmt.Errorf("no room for %d bytes, and no object there is needed; %d bytes fit into an empty store",
		len(value), s.largest)
}

func freeCanGo(s Step) error {
	key, _ := s.Op.Args["key"].(string)
	o := s.w.live[key]
	if s.Op.Name != "store.evict" || !s.ok() {
		return nil
	}
	switch evicted := s.Reply.Fields["evicted"] == true; {
	case evicted && s.After.find(key) != nil:
		return fmt.Errorf("%q was evicted, and is there", key)
	case !evicted && o != nil && s.w.free(o):
		return fmt.Errorf("%q stays, and is not needed", key)
	}
	return nil
}

func adopted(s Step) error {
	if s.Op.Name != "store.adopt" || s.Reply.Kind == skipped {
		return nil
	}
	if !s.ok() {
		return fmt.Errorf("what the writer left can't be adopted: %s", s.Reply)
	}
	dropped := number(s.Reply.Fields["dropped"])
	for _, o := range s.Before.Objects {
		if s.After.find(o.Key) == nil {
			dropped--
		}
	}
	if dropped < 0 {
		return fmt.Errorf("%d objects are gone that were not reported", -dropped)
	}
	for _, o := range s.After.Objects {
		if was := s.Before.find(o.Key); was == nil || placeOf(was.Handle) != placeOf(o.Handle) {
			return fmt.Errorf("%q came, or has another handle", o.Key)
		}
	}
	return nil
}
