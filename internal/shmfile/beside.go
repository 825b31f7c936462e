package shmfile

import (
	"os"
	"strings"
)

// LeasesSuffix is what the table of leases has behind the name of its segment.
const LeasesSuffix = ".leases"

// beside are what files have behind the name of their segment, but for its sidecar.
var beside = []string{LeasesSuffix, EnginesSuffix, EnginesSuffix + EnginesNew}

// BesideSize returns the bytes of the files beside the segment at path and its sidecar.
func BesideSize(path string) (n int64) {
	for _, suffix := range beside {
		if st, err := os.Lstat(path + suffix); err == nil && st.Mode().IsRegular() {
			n += st.Size()
		}
	}
	return n
}

// BesideOf returns the name of the segment beside which a file of this name would lie.
func BesideOf(name string) (segment string, ok bool) {
	for _, suffix := range beside {
		if segment, ok = strings.CutSuffix(name, suffix); ok {
			return segment, true
		}
	}
	return "", false
}
