package lrutest

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"

	"github.com/ringcache/ringcache/fuzz"
)

// Invariants returns what must hold after every operation on a cache. same-as-vllm is off unless
// [Options].Release switches it on.
func Invariants() []fuzz.Invariant[Step] {
	return []fuzz.Invariant[Step]{
		{Name: "size-is-the-sum", Why: "a size that drifts from the entries makes a cache evict for nothing, or grow without a bound", Holds: sizeIsTheSum},
		{Name: "never-above-capacity", Why: "the capacity is memory that someone else counts on",
			Holds: neverAboveCapacity},
		{Name: "value-is-the-last", Why: "an old value, or another key's, is wrong data", Holds: valueIsTheLast},
		{Name: "order-is-use", Why: "a cache that does not renew what is used evicts what is needed next",
			Holds: orderIsUse},
		{Name: "evicts-the-oldest", Why: "what was used last is needed again soonest; a mirror expects the oldest to go", Holds: evictsTheOldest},
		{Name: "evicts-no-more-than-needed", Why: "each entry that goes for nothing is a miss later",
			Holds: evictsNoMore},
		{Name: "pinned-stay", Why: "a pinned entry is in use", Holds: pinnedStay},
		{Name: "refused-changes-nothing", Why: "a value that exceeds the cache must not empty it on its way",
			Holds: refusedChangesNothing},
		{Name: "what-fits-is-stored", Why: "a cache that refuses what fits is no cache", Holds: whatFitsIsStored},
		{Name: "absent-changes-nothing", Why: "a trace of a key that is absent is an entry which no eviction can remove", Holds: absentChangesNothing},
		{Name: "only-the-named-goes", Why: "a removal must not take others along, and must remove what it names",
			Holds: onlyTheNamedGoes},
		{Name: "counts-right", Why: "operators size caches by the hits", Holds: countsRight},
		{Name: sameAsVLLMName, Why: "two caches in two processes have to evict the same, whatever an LRU could do as well", Holds: sameAsVLLM},
	}
}

func sizeIsTheSum(s Step) error {
	var sum int64
	for _, e := range s.After.Entries {
		if want := int64(len(s.Last[e.Key])); e.Size != want {
			return fmt.Errorf("%q is listed with %d bytes, its value has %d", e.Key, e.Size, want)
		}
		sum += e.Size
	}
	if s.After.Size != sum {
		return fmt.Errorf("the cache counts %d bytes, its entries have %d", s.After.Size, sum)
	}
	return nil
}

func neverAboveCapacity(s Step) error {
	var sum int64
	for _, e := range s.After.Entries {
		sum += e.Size
	}
	if float64(sum) > s.Capacity {
		return fmt.Errorf("%d bytes in a cache of %g", sum, s.Capacity)
	}
	return nil
}

func valueIsTheLast(s Step) error {
	if s.Op.Name != "lru.get" {
		return nil
	}
	_, there := s.Before.find(s.Key)
	switch {
	case s.OK != there:
		return fmt.Errorf("get of %q reports %t, and it is there: %t", s.Key, s.OK, there)
	case s.OK && !bytes.Equal(s.Got, s.Last[s.Key]):
		return fmt.Errorf("get of %q returns %x, put was %x", s.Key, s.Got, s.Last[s.Key])
	}
	return nil
}

// orderIsUse: what is used becomes the newest, and what stays keeps its order.
func orderIsUse(s Step) error {
	used := s.Op.Name == "lru.put" && s.OK || s.Op.Name == "lru.get" || s.Op.Name == "lru.touch"
	var want []string
	for _, e := range s.Before.Entries {
		if _, stays := s.After.find(e.Key); stays && (!used || e.Key != s.Key) {
			want = append(want, e.Key)
		}
	}
	if _, there := s.After.find(s.Key); used && there {
		want = append(want, s.Key)
	}
	if got := s.After.keys(); !slices.Equal(want, got) {
		return fmt.Errorf("the order is %q, by use it is %q", got, want)
	}
	return nil
}

func evictsTheOldest(s Step) error {
	if s.Op.Name == "lru.popitem" {
		i := slices.IndexFunc(s.Before.Entries, func(e Entry) bool {
			return !e.Pinned || s.Op.Args["remove_pinned"] == true
		})
		if i < 0 {
			if s.OK {
				return fmt.Errorf("%q was returned as the oldest, and none could go", s.Key)
			}
			return nil
		}
		if want := s.Before.Entries[i].Key; !s.OK || s.Key != want {
			return fmt.Errorf("the oldest is %q, returned was %q", want, s.Key)
		}
		return nil
	}
	if s.Op.Name != "lru.put" {
		return nil
	}
	gone := s.gone(s.Key)
	var oldest []Entry // as many, without the key itself: it moves in any case
	for _, e := range s.Before.Entries {
		if !e.Pinned && e.Key != s.Key && len(oldest) < len(gone) {
			oldest = append(oldest, e)
		}
	}
	if !slices.Equal(gone, oldest) {
		return fmt.Errorf("%v went, and the oldest are %v", gone, oldest)
	}
	return nil
}

// evictsNoMore: without the last one that went, the value would not have fitted. An old value of
// the same key may count as long as it is there, see Options.GrowAnew.
func evictsNoMore(s Step) error {
	gone := s.gone(s.Key)
	if s.Op.Name != "lru.put" || !s.OK || len(gone) == 0 {
		return nil
	}
	size, last := int64(len(s.Value)), gone[len(gone)-1]
	need := size
	for _, e := range s.Before.Entries {
		if e.Key != s.Key && !slices.Contains(gone[:len(gone)-1], e) {
			need += e.Size
		}
	}
	old, there := s.Before.find(s.Key)
	if there && s.GrowAnew && old.Size < size {
		need += old.Size
	}
	// An old value that grows may be evicted itself, on the way to the newest place.
	if float64(need) <= s.Capacity && !(there && s.Before.place(s.Key) < s.Before.place(last.Key)) {
		return fmt.Errorf("%q went, and %d bytes would have fitted without that", last.Key, size)
	}
	return nil
}

func pinnedStay(s Step) error {
	if s.Op.Name == "lru.clear" || s.Op.Name == "lru.popitem" && s.Op.Args["remove_pinned"] == true {
		return nil
	}
	for _, e := range s.Before.Entries {
		if !e.Pinned || s.Op.Name == "lru.pop" && s.Key == e.Key {
			continue
		}
		if now, ok := s.After.find(e.Key); !ok || !now.Pinned {
			return fmt.Errorf("%q was pinned; now it is there: %t, and pinned: %t", e.Key, ok, now.Pinned)
		}
	}
	return nil
}

func refusedChangesNothing(s Step) error {
	if s.Op.Name != "lru.put" || float64(len(s.Value)) <= s.Capacity {
		return nil
	}
	if s.OK {
		return fmt.Errorf("%d bytes were stored in a cache of %g", len(s.Value), s.Capacity)
	}
	return unchanged(s)
}

func unchanged(s Step) error {
	if !slices.Equal(s.Before.Entries, s.After.Entries) || s.Before.Size != s.After.Size {
		return fmt.Errorf("before there was %v, and now %v", s.Before.Entries, s.After.Entries)
	}
	return nil
}

func whatFitsIsStored(s Step) error {
	if s.Op.Name != "lru.put" {
		return nil
	}
	stay := int64(len(s.Value))
	for _, e := range s.Before.Entries {
		if e.Pinned && (e.Key != s.Key || s.GrowAnew && e.Size < int64(len(s.Value))) {
			stay += e.Size
		}
	}
	e, there := s.After.find(s.Key)
	switch {
	case s.OK && (!there || e.Size != int64(len(s.Value))):
		return fmt.Errorf("put reports that %q is stored: there %t, %d bytes", s.Key, there, e.Size)
	case !s.OK && float64(stay) <= s.Capacity:
		return fmt.Errorf("%d bytes are refused, and fit beside what is pinned", len(s.Value))
	}
	return nil
}

func absentChangesNothing(s Step) error {
	if _, there := s.Before.find(s.Key); there {
		return nil
	}
	switch s.Op.Name {
	case "lru.get", "lru.touch", "lru.pop", "lru.pin":
		if s.OK {
			return fmt.Errorf("%s reports that %q is there", s.Op.Name, s.Key)
		}
		return unchanged(s)
	}
	return nil
}

func onlyTheNamedGoes(s Step) error {
	var want []Entry
	switch s.Op.Name {
	case "lru.pop", "lru.popitem":
		if _, there := s.Before.find(s.Key); there != s.OK {
			return fmt.Errorf("it reports %t, and %q is there: %t", s.OK, s.Key, there)
		}
		want = slices.DeleteFunc(slices.Clone(s.Before.Entries), func(e Entry) bool { return s.OK && e.Key == s.Key })
	case "lru.clear":
	case "lru.pin":
		if e, there := s.After.find(s.Key); there && !e.Pinned {
			return fmt.Errorf("%q is not pinned", s.Key)
		}
		if !slices.Equal(s.Before.keys(), s.After.keys()) {
			return fmt.Errorf("before there was %q, and now %q", s.Before.keys(), s.After.keys())
		}
		return nil
	default:
		return nil
	}
	if !slices.Equal(want, s.After.Entries) {
		return fmt.Errorf("what stays is %v, and should be %v", s.After.Entries, want)
	}
	return nil
}

func countsRight(s Step) error {
	hits, total := s.Before.Hits, s.Before.Total
	switch s.Op.Name {
	case "lru.get":
		total++
		if s.OK {
			hits++
		}
	case "lru.clear":
		hits, total = 0, 0
	}
	// A cache without a Counter shows zeros.
	if counted := s.After.Hits != 0 || s.After.Total != 0 || s.Before.Total != 0; counted &&
		(hits != s.After.Hits || total != s.After.Total) {
		return fmt.Errorf("%d hits of %d, and should be %d of %d", s.After.Hits, s.After.Total, hits, total)
	}
	return nil
}

// sameAsVLLM compares what is there with the model, and what came back.
func sameAsVLLM(s Step) error {
	order, _ := s.WantAfter["order"].([]string)
	if got := s.After.keys(); !slices.Equal(got, order) {
		return fmt.Errorf("there is %q, in vLLM's %q", got, order)
	}
	sizes := map[string]int64{}
	for _, e := range s.After.Entries {
		sizes[e.Key] = e.Size
	}
	if want := s.WantAfter["sizes"]; len(order) > 0 && !reflect.DeepEqual(want, sizes) {
		return fmt.Errorf("sizes %v, in vLLM's %v", sizes, want)
	}
	switch s.Op.Name {
	case "lru.put", "lru.popitem", "lru.pin":
		if s.OK != (s.Want.Kind == "") {
			return fmt.Errorf("it reports %t, vLLM %s", s.OK, s.Want)
		}
	}
	return nil
}
