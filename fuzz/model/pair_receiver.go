package model

import (
	"fmt"
	"strings"
)

// feature is one item of a request as it arrives at a receiver.
type feature struct {
	key   string
	value *sized // nil if it came without data
}

// features is get_and_update_features: all features are touched, in the releases that do, and
// then taken in order.
func (e *pairEnd) features(a *args) (map[string]any, error) {
	var fs []feature
	for _, v := range field[[]any](a, "features") {
		f, err := e.feature(v)
		if err != nil {
			return nil, err
		}
		fs = append(fs, f)
	}
	if a.err != nil {
		return nil, a.err
	}
	if e.release.Touch {
		for _, f := range fs {
			e.touch(f.key)
		}
	}
	values := []any{}
	var absent []string
	for i, f := range fs {
		v, ok, err := e.take(f)
		switch {
		case err != nil:
			return nil, err
		case !ok && !e.release.MissError: // an assertion, which ends the request here
			return nil, missed(e.absentFrom(fs[i:]), absentHere(f.key))
		case !ok:
			absent = append(absent, f.key)
		default:
			values = append(values, v.reply)
		}
	}
	if absent != nil {
		return nil, missed(absent, absentThere(absent))
	}
	return map[string]any{"values": values}, nil
}

// feature reads a feature. Caches go by its key, the hash of the item, or by its identifier where
// there is no key, and before 0.14 where there are both.
func (e *pairEnd) feature(v any) (f feature, err error) {
	m, ok := v.(map[string]any)
	if !ok {
		return f, invalid("feature %v", v)
	}
	key, _ := m["key"].(string)
	identifier, _ := m["identifier"].(string)
	if m["key"] == nil && m["identifier"] == nil {
		return f, invalid("a feature without a key")
	}
	if f.key = key; identifier != "" && (key == "" || !e.release.ByHash) {
		f.key = identifier
	}
	if m["value"] != nil {
		f.value, err = e.python.value(m["value"])
	}
	return f, err
}

// take is get_and_update_item of a receiver; ok reports that there is a value. From 0.31 on, data
// that comes replaces what is cached; before, what is cached wins.
func (e *pairEnd) take(f feature) (v *sized, ok bool, err error) {
	if f.value != nil && e.release.FreshWins {
		e.pop(f.key)
	} else if entry, hit := e.get(f.key); hit {
		return entry.value.(*sized), true, nil
	}
	if f.value == nil {
		return nil, false, nil
	}
	return f.value, true, e.store(f.key, f.value.size, f.value)
}

// absentFrom lists the keys that come without data and are not cached. The assertion of vLLM
// names the first of them only.
func (e *pairEnd) absentFrom(fs []feature) (keys []string) {
	for _, f := range fs {
		if f.value == nil && e.find(f.key) < 0 {
			keys = append(keys, f.key)
		}
	}
	if e.upstream {
		return keys[:1]
	}
	return keys
}

// absentThere is the text of vLLM's MultiModalCacheMissError.
func absentThere(keys []string) string {
	quoted := make([]string, len(keys))
	for i, k := range keys {
		quoted[i] = "'" + k + "'"
	}
	return fmt.Sprintf("Multi-modal items [%s] are not in the receiver (P1) cache and no data was provided to recompute them (P0/P1 cache drift); "+
		"the request should be retried with the multi-modal data attached.", strings.Join(quoted, ", "))
}
