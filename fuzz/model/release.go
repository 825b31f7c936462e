package model

import (
	"fmt"
	"strconv"
	"strings"
)

// Release is what differs between the releases of vLLM (docs/compatibility.md).
type Release struct {
	Version string

	// PhantomStart is the defect of 0.11.0: after a free, the ring starts at the chunk that was
	// freed and not at the oldest live one, and a chunk of id 0 is there from the beginning.
	PhantomStart bool
	IDsRestart   bool // Clear starts ids at 0 again, before 0.32.0
	Signed       bool // handles, from 0.32.0 on, where 32 bytes of secret stand in front of the ring
	// Counting of uses and reads: 0 once per use (0.11), 1 touch counts, too (0.12 to 0.31),
	// 2 once per address, and touch protects on the writer's side (from 0.32.0 on).
	Counting int

	Touch bool // the mirrored caches touch, from 0.12 on
	// GhostTouch is the defect of LRUCache up to 0.23: a touch of an absent key leaves the key
	// in the order. The mirrored caches have it from 0.12 on, where they first touch.
	GhostTouch bool
	ByHash     bool // caches go by the hash of an item, from 0.14 on, and by its identifier before
	PutIfFits  bool // what exceeds the cache is sent uncached, from 0.29.0 on
	MissError  bool // the receiver reports all that is missing, from 0.28 on; an assertion before
	FreshWins  bool // data that comes replaces the cached item, from 0.31.0 on
	Invalidate bool // the sender has invalidate, from 0.28 on
}

// Lookup returns the facts of a release from 0.11.0 to 0.33.0.
func Lookup(version string) (Release, error) {
	parts := strings.Split(version, ".")
	if len(parts) != 3 || parts[0] != "0" {
		return Release{}, fmt.Errorf("model: %q is no release of vLLM from 0.11.0 to 0.33.0", version)
	}
	minor, err := strconv.Atoi(parts[1])
	if err != nil || minor < 11 || minor > 33 {
		return Release{}, fmt.Errorf("model: %q is no release of vLLM from 0.11.0 to 0.33.0", version)
	}
	r := Release{
		Version:      version,
		PhantomStart: version == "0.11.0",
		IDsRestart:   minor < 32,
		Signed:       minor >= 32,
		Touch:        minor >= 12,
		GhostTouch:   minor < 24,
		ByHash:       minor >= 14,
		PutIfFits:    minor >= 29,
		MissError:    minor >= 28,
		FreshWins:    minor >= 31,
		Invalidate:   minor >= 28,
	}
	switch {
	case minor >= 32:
		r.Counting = 2
	case minor >= 12:
		r.Counting = 1
	}
	return r, nil
}
