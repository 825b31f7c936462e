package main

import (
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/ringcache/ringcache/pycompat"
)

// versionText describes the build: the module's version, the commit that it was
// built from if the build recorded it, and the releases of vLLM whose wires it supports.
func versionText(info *debug.BuildInfo) string {
	parts := []string{"ringcache of an unknown version"}
	if info != nil {
		if v := info.Main.Version; v != "" {
			parts[0] = "ringcache " + v
		}
		set := map[string]string{}
		for _, s := range info.Settings {
			set[s.Key] = s.Value
		}
		if commit := set["vcs.revision"]; commit != "" {
			if at := set["vcs.time"]; at != "" {
				commit += " of " + at
			}
			parts = append(parts, "commit "+commit)
		}
		if set["vcs.modified"] == "true" {
			parts = append(parts, "modified")
		}
	}
	parts = append(parts, fmt.Sprintf("for vLLM %s to %s", pycompat.Releases()[0].Version, pycompat.Newest().Version))
	return strings.Join(parts, ", ")
}
