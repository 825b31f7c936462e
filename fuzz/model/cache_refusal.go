package model

import (
	"errors"
	"fmt"

	"github.com/ringcache/ringcache/fuzz"
)

// cacheRefusal is a reply of a cache that is an error.
type cacheRefusal struct{ fuzz.Reply }

func (r *cacheRefusal) Error() string { return r.String() }

func refuseCache(kind, format string, args ...any) error {
	return &cacheRefusal{fuzz.Reply{Kind: kind, Text: fmt.Sprintf(format, args...)}}
}

// hang is what vLLM does where it never answers.
func hang(format string, args ...any) error { return refuseCache("hang", format, args...) }

func tooLarge(key string, size int64, capacity float64) error {
	return &cacheRefusal{fuzz.Reply{
		Kind: "too_large", Text: fmt.Sprintf("%q has %d bytes, the cache %g", key, size, capacity), Upstream: "value too large",
	}}
}

func allPinned() error {
	return &cacheRefusal{fuzz.Reply{
		Kind: "invalid", Text: "everything is pinned, or the cache is empty", Upstream: "All items are pinned, cannot remove oldest from the cache.",
	}}
}

// nothingToSize is the reply to a value whose size vLLM can't add up.
func nothingToSize() error {
	return &cacheRefusal{fuzz.Reply{
		Kind: "invalid", Text: "an item, or a field of it, has no value", Upstream: "reduce() of empty iterable with no initial value",
	}}
}

// missed is the reply to a request that needs values which are absent.
func missed(keys []string, upstream string) error {
	return &cacheRefusal{fuzz.Reply{
		Kind: "miss", Text: fmt.Sprintf("absent, and without data: %q", keys), Upstream: upstream, Fields: map[string]any{"hashes": keys},
	}}
}

// answer makes a reply of fields, or of a cacheRefusal. Any other error ends the model.
func answer(fields map[string]any, err error) (fuzz.Reply, error) {
	var r *cacheRefusal
	if errors.As(err, &r) {
		return r.Reply, nil
	}
	if err != nil {
		return fuzz.Reply{}, err
	}
	if fields == nil {
		fields = map[string]any{}
	}
	return fuzz.Reply{Fields: fields}, nil
}
