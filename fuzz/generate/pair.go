package generate

import (
	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/model"
)

// PairOptions configure [Pair].
type PairOptions struct {
	// Release, if its Version is not "", is written into every pair.new.
	Release model.Release
	// Upstream leaves out what vLLM itself can't do in the release: operations that it does not
	// have, and those from which it never returns (see model.CacheOptions).
	Upstream bool
	// Capacity of both ends, any small one if 0.
	Capacity float64
	// Python, if not "", is the interpreter whose sizes of numbers count.
	Python string
}

// Pair makes requests through a sender and a receiver of vLLM's mirrored caches, as a frontend
// does: cached? for all, touch all, update each, and then the features for the receiver, without
// data where the sender says that it is there. Some requests are lost, late, or overtaken, one
// end is cleared alone, keys come twice in a request, and after a miss the keys are invalidated
// and the request is made again. In between there are operations out of turn, and those of a
// frontend that has no other end.
func Pair(o PairOptions) fuzz.Generator {
	return func(c *fuzz.Choices, length int) []fuzz.Op {
		r := newestRelease(o.Release)
		m := model.NewPair(r, model.CacheOptions{Upstream: o.Upstream})
		s := &pairScript{cacheScript: cacheScript{Choices: c, model: m, length: length}, options: o, release: r}
		s.size = s.capacity(o.Capacity)
		for _, end := range []string{"sender", "receiver", "processor_only"} {
			s.make(end)
		}
		for !s.full() {
			s.step()
		}
		return s.ops[:min(len(s.ops), length)]
	}
}

type pairScript struct {
	cacheScript
	options PairOptions
	release model.Release
	size    float64 // of every end
	late    [][]any // requests on their way
}

// make begins an end anew. Its name is its role.
func (s *pairScript) make(end string) {
	args := map[string]any{"pair": end, "role": end, "capacity": s.size}
	if v := s.options.Release.Version; v != "" {
		args["generation"] = v
	}
	if v := s.options.Python; v != "" {
		args["python"] = v
	}
	s.do("pair.new", args)
}

// on performs an operation on an end, and begins that end anew where vLLM would never return.
func (s *pairScript) on(end, operation string, args map[string]any) fuzz.Reply {
	if args == nil {
		args = map[string]any{}
	}
	args["pair"] = end
	r := s.do(operation, args)
	if r.Kind == "hang" {
		s.do("pair.close", map[string]any{"pair": end})
		s.make(end)
	}
	return r
}

func (s *pairScript) step() {
	switch n := s.Int(100); {
	case n < 55:
		s.request(s.items(), true)
	case n < 65:
		s.deliverLate()
	case n < 70:
		s.alone(fuzz.Pick(s.Choices, "sender", "processor_only"))
	case n < 75: // what no frontend sends
		s.deliver(s.features(s.items(), func(int) bool { return s.Percent(50) }))
	case n < 80:
		s.request(s.items(), false)
	case n < 83:
		s.on(fuzz.Pick(s.Choices, "sender", "receiver", "processor_only"), "pair.clear", nil)
	case n < 84:
		s.outOfPlace()
	default:
		s.on(fuzz.Pick(s.Choices, "sender", "receiver", "processor_only"), "pair.state", nil)
	}
}

// pairItem is one item of a request.
type pairItem struct {
	key   string
	value map[string]any
}

// items returns those of a request. One in ten names a key of it twice.
func (s *pairScript) items() []pairItem {
	items := make([]pairItem, 1+s.Int(4))
	for i := range items {
		key := s.key()
		if i > 0 && s.Percent(10) {
			key = items[i-1].key
		}
		items[i] = pairItem{key, s.value(key)}
	}
	return items
}

// request takes a request through a frontend, and sends it.
func (s *pairScript) request(items []pairItem, inOrder bool) {
	sent, ok := s.frontend("sender", items)
	switch {
	case !ok && s.Percent(80): // the frontend gives up; else it sends what it has
	case !inOrder && s.Percent(40): // lost
	case !inOrder:
		s.late = append(s.late, sent)
	default:
		s.deliver(sent)
	}
}

// frontend performs the steps of a frontend, and returns the features of the request; ok reports
// that no item was missed.
func (s *pairScript) frontend(end string, items []pairItem) (features []any, ok bool) {
	keys := []any{}
	for _, it := range items {
		keys = append(keys, it.key)
	}
	cached, _ := s.on(end, "pair.cached", map[string]any{"keys": keys}).Fields["cached"].([]bool)
	if (s.release.Touch || !s.options.Upstream) && s.Percent(90) {
		for _, key := range keys {
			s.on(end, "pair.touch", map[string]any{"key": key})
		}
	}
	omitted := make([]bool, len(items))
	for i, it := range items {
		args := map[string]any{"key": it.key, "value": any(it.value)}
		if i < len(cached) && cached[i] && s.Percent(95) {
			args["value"] = nil
		} else if s.Percent(20) {
			args["prompt_updates"] = fuzz.Pick[any](s.Choices, "<image>", []any{1, "x"}, map[string]any{"n": 3})
		}
		r := s.on(end, "pair.update", args)
		if r.Kind != "" {
			return s.features(items[:i], func(i int) bool { return omitted[i] }), false
		}
		omitted[i] = r.Fields["data"] == "omitted"
	}
	return s.features(items, func(i int) bool { return omitted[i] }), true
}

// features are those of a request, without data where it is omitted.
func (s *pairScript) features(items []pairItem, omitted func(i int) bool) []any {
	out := []any{}
	for i, it := range items {
		f := map[string]any{"key": it.key, "value": any(it.value)}
		if omitted(i) {
			f["value"] = nil
		}
		switch s.Int(20) {
		case 0:
			f["identifier"] = "lora:" + it.key
		case 1:
			f["key"], f["identifier"] = nil, it.key
		}
		out = append(out, f)
	}
	return out
}

// deliver hands a request to the receiver. After a miss the sender forgets the keys, and the
// request is made again.
func (s *pairScript) deliver(features []any) {
	r := s.on("receiver", "pair.features", map[string]any{"features": features})
	if r.Kind != "miss" || s.Percent(20) {
		return
	}
	var again []pairItem
	for _, key := range r.Fields["hashes"].([]string) {
		if s.release.Invalidate || !s.options.Upstream {
			s.on("sender", "pair.invalidate", map[string]any{"key": key})
		}
		again = append(again, pairItem{key, s.value(key)})
	}
	if sent, ok := s.frontend("sender", again); ok {
		s.on("receiver", "pair.features", map[string]any{"features": sent})
	}
}

// deliverLate delivers a request that was held back, mostly the oldest.
func (s *pairScript) deliverLate() {
	if len(s.late) == 0 {
		return
	}
	i := 0
	if s.Percent(30) {
		i = s.Int(len(s.late))
	}
	sent := s.late[i]
	s.late = append(s.late[:i:i], s.late[i+1:]...)
	s.deliver(sent)
}

// alone is a step of a frontend out of turn.
func (s *pairScript) alone(end string) {
	if s.Percent(50) {
		s.frontend(end, s.items())
		return
	}
	operations := []string{"pair.update"}
	if s.release.Touch || !s.options.Upstream {
		operations = append(operations, "pair.touch")
	}
	if s.release.Invalidate || !s.options.Upstream {
		operations = append(operations, "pair.invalidate")
	}
	s.on(end, fuzz.Pick(s.Choices, operations...), map[string]any{"key": s.key()})
}

// outOfPlace is an operation that an end does not have.
func (s *pairScript) outOfPlace() {
	if s.Percent(50) {
		s.on("receiver", "pair.update", map[string]any{"key": s.key()})
		return
	}
	s.on("sender", "pair.features", map[string]any{"features": []any{}})
}
