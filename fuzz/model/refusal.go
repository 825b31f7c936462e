package model

import (
	"errors"
	"fmt"

	"github.com/ringcache/ringcache/fuzz"
)

// refusal is a reply that is an error.
type refusal struct{ fuzz.Reply }

func (r *refusal) Error() string { return r.String() }

func refuse(kind, format string, args ...any) error {
	return &refusal{fuzz.Reply{Kind: kind, Text: fmt.Sprintf(format, args...)}}
}

func invalid(format string, args ...any) error { return refuse("invalid", format, args...) }

// refuseAsVLLM refuses in vLLM's own words.
func refuseAsVLLM(kind, format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	return &refusal{fuzz.Reply{Kind: kind, Text: text, Upstream: text}}
}

// hang is what vLLM does where it never answers.
func hang(format string, args ...any) error { return refuse("hang", format, args...) }

func tooLarge(key string, size int64, capacity float64) error {
	return &refusal{fuzz.Reply{
		Kind: "too_large", Text: fmt.Sprintf("%q has %d bytes, the cache %g", key, size, capacity),
		Upstream: "value too large",
	}}
}

func allPinned() error {
	return &refusal{fuzz.Reply{
		Kind: "invalid", Text: "everything is pinned, or the cache is empty",
		Upstream: "All items are pinned, cannot remove oldest from the cache.",
	}}
}

// nothingToSize is the reply to a value whose size vLLM can't add up.
func nothingToSize() error {
	return &refusal{fuzz.Reply{
		Kind: "invalid", Text: "an item, or a field of it, has no value",
		Upstream: "reduce() of empty iterable with no initial value",
	}}
}

// missed is the reply to a request that needs values which are absent.
func missed(keys []string, upstream string) error {
	return &refusal{fuzz.Reply{
		Kind: "miss", Text: fmt.Sprintf("absent, and without data: %q", keys), Upstream: upstream,
		Fields: map[string]any{"hashes": keys},
	}}
}

// doEach performs operations one by one.
func doEach(ops []fuzz.Op, do func(fuzz.Op) (map[string]any, error)) ([]fuzz.Reply, error) {
	var replies []fuzz.Reply
	for _, op := range ops {
		r, err := answer(do(op))
		if err != nil {
			return replies, err
		}
		replies = append(replies, r)
	}
	return replies, nil
}

// answer makes a reply of fields, or of a refusal. Any other error ends the model.
func answer(fields map[string]any, err error) (fuzz.Reply, error) {
	var r *refusal
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
