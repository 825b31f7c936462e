package upstream

import (
	"errors"
	"fmt"
	"strings"
)

// ErrMiss is wrapped by [MissError].
var ErrMiss = errors.New("lrusync: cache miss")

// MissError reports that items came without data and are not cached. The
// frontend sends them again with data.
type MissError struct {
	// Keys are the missing keys in the order of the request, a key as often as
	// it was missed.
	Keys []string

	upstream string
}

// Error names the keys that the receiver lacks.
func (e *MissError) Error() string {
	return fmt.Sprintf("lrusync: not cached and sent without data: %q", e.Keys)
}

// Unwrap makes errors.Is(err, ErrMiss) true.
func (e *MissError) Unwrap() error { return ErrMiss }

// UpstreamText is the text of vLLM's error for the same failure: of the
// assertion on the frontend's side and, before 0.28, on the engine's, else of
// MultiModalCacheMissError.
func (e *MissError) UpstreamText() string { return e.upstream }

// missedByEngine is typed from 0.28 on; before, vLLM's engine fails at the first
// key.
func missedByEngine(keys []string, typed bool) *MissError {
	if !typed {
		return &MissError{Keys: keys, upstream: assertionText(keys[0])}
	}
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = pyString(k)
	}
	return &MissError{keys, fmt.Sprintf("Multi-modal items [%s] are not in the receiver (P1) cache and no data was provided to recompute them "+
		"(P0/P1 cache drift); the request should be retried with the multi-modal data attached.",
		strings.Join(names, ", "))}
}

func missedByFrontend(key string) *MissError {
	return &MissError{Keys: []string{key}, upstream: assertionText(key)}
}

func assertionText(key string) string { return "Expected a cached item for mm_hash=" + pyString(key) }

// pyString quotes as Python's repr does, for strings without quotes, backslashes
// and control characters.
func pyString(s string) string { return "'" + s + "'" }
