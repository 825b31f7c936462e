package lmcache

import (
	"encoding/json"
	"slices"

	"github.com/ringcache/ringcache/kv"
)

// maxLayouts bounds the layouts that are remembered.
const maxLayouts = 64

// remember notes a layout that was registered: what was stored by it is found by it, also when its engine has gone.
func (st *state) remember(l kv.Layout) {
	st.Layouts = slices.DeleteFunc(st.Layouts, func(old kv.Layout) bool { return equal(old, l) })
	st.Layouts = slices.Insert(st.Layouts, 0, l)
	st.Layouts = st.Layouts[:min(len(st.Layouts), maxLayouts)]
}

// Layouts returns the JSON of the layouts that were registered, the last one first.
func (s *Server) Layouts() []string {
	s.mu.Lock()
	all := slices.Clone(s.state.Layouts)
	s.mu.Unlock()
	out := make([]string, 0, len(all))
	for _, l := range all {
		b, err := json.Marshal(l)
		if err != nil { // a layout has nothing that can't be written
			continue
		}
		out = append(out, string(b))
	}
	return out
}
