package main

import (
	"bytes"
	"runtime/debug"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/pycompat"
)

func TestVersionFlag(t *testing.T) {
	var out bytes.Buffer
	status := -1
	p, err := kong.New(&commands{}, append(options(), kong.Writers(&out, &out), kong.Exit(func(n int) {
		status = n
	}))...)
	require.NoError(t, err)
	_, _ = p.Parse([]string{"--version"}) // the flag ends the process, which Exit does not do here
	require.Zero(t, status)
	require.Regexp(t, `^ringcache \S+`, out.String())
	require.Contains(t, out.String(), "vLLM "+pycompat.Releases()[0].Version+" to "+pycompat.Newest().Version)
}

func TestVersionTextHasTheCommit(t *testing.T) {
	for want, info := range map[string]*debug.BuildInfo{
		"ringcache of an unknown version":   nil,
		"ringcache of an unknown version, ": {},
		"ringcache v1.2.3, ":                {Main: debug.Module{Version: "v1.2.3"}},
		"ringcache (devel), commit 0123abcd of 2026-01-02T03:04:05Z, modified, ": {
			Main: debug.Module{Version: "(devel)"},
			Settings: []debug.BuildSetting{
				{Key: "vcs.revision", Value: "0123abcd"}, {Key: "vcs.time", Value: "2026-01-02T03:04:05Z"},
				{Key: "vcs.modified", Value: "true"},
			},
		},
		"ringcache v1.2.3, commit 0123abcd, ": {
			Main: debug.Module{Version: "v1.2.3"},
			Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "0123abcd"},
				{Key: "vcs.modified", Value: "false"}},
		},
	} {
		require.Contains(t, versionText(info), want)
	}
}
