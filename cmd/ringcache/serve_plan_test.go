package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestServePlan(t *testing.T) {
	folder := t.TempDir()
	args := []string{"serve", "plan", "--size", "100MiB", "--disk", folder, "--disk-size", "200MiB", "--store", "400MiB", "--hosts", "4",
		"--rate", "50", "--object", "1MiB", "--objects", "1000", "--once", "0.1", "--cost", "100ms", "--host-link", "25Gbit", "--store-link", "100Mbit"}
	out, errOut, code := ringcache(t, args...)
	require.Zero(t, code, errOut)
	for _, want := range []string{
		"LEVEL ", "\nmemory    100.0 MiB a host ", "\ndisk      200.0 MiB a host ", "\nstore     400.0 MiB ", "\ncomputed  -  ",
		"\nhost, from the store ", "too slow: store, from all hosts: ", "s each second, and 5 s without levels\n",
	} {
		require.Contains(t, out, want)
	}
	out, errOut, code = ringcache(t, append(args, "--json")...)
	require.Zero(t, code, errOut)
	var p plan
	require.NoError(t, json.Unmarshal([]byte(out), &p))
	require.Len(t, p.Levels, 3)
	require.Len(t, p.Links, 6)
	share, left := p.Share, 1.0
	for _, l := range p.Levels {
		share += l.Share
		require.InDelta(t, l.Share, l.Rate*left, 1e-9)
		require.InDelta(t, 50*l.Share, l.Hits, 1e-9)
		left -= l.Share
	}
	require.InDelta(t, 1, share, 1e-9)
	require.InDelta(t, p.Computed*0.1, *p.Computing, 1e-9)
	require.InDelta(t, 5, *p.Without, 1e-9)
	by := map[string]planLink{}
	for _, l := range p.Links {
		by[l.Link] = l
	}
	const mib = 1 << 20
	require.InDelta(t, p.Levels[2].Hits*mib, by["store, to all hosts"].Bytes, 1)
	require.InDelta(t, p.Levels[2].Hits*mib/4, by["host, from the store"].Bytes, 1)
	require.InDelta(t, p.Computed*mib, by["store, from all hosts"].Bytes, 1)
	require.InDelta(t, (p.Levels[2].Hits+p.Computed)*mib/4, by["disk of a host, written"].Bytes, 1)
	require.InDelta(t, p.Levels[1].Hits*mib/4, by["disk of a host, read"].Bytes, 1)
	require.InDelta(t, by["store, to all hosts"].Bytes/12.5e6, *by["store, to all hosts"].Load, 1e-6)
	require.Nil(t, by["disk of a host, read"].Load)
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Empty(t, entries, "nothing is opened")
}

// TestScalePage: docs/scale.md has what its command prints.
func TestScalePage(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("other processors round other digits")
	}
	b, err := os.ReadFile(filepath.Join("..", "..", "docs", "scale.md"))
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(b), "\n    $ ringcache ")
	require.True(t, found)
	line, rest, _ := strings.Cut(rest, "\n")
	out, errOut, code := ringcache(t, strings.Fields(line)...)
	require.Zero(t, code, errOut)
	for l := range strings.Lines(out) {
		want, after, _ := strings.Cut(rest, "\n")
		require.Equal(t, strings.TrimPrefix(want, "    "), strings.TrimRight(l, " \n"))
		rest = after
	}
	require.True(t, strings.HasPrefix(rest, "\n"), "the page shows no more than is printed")
}

// TestServePlanOfATrace: three chunks are found again, the fourth is new.
func TestServePlanOfATrace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "requests")
	require.NoError(t, os.WriteFile(path, []byte("a b c\na b c d\n"), 0o600))
	out, errOut, code := ringcache(t, "serve", "plan", "--trace", path, "--chain", "--object", "1MiB", "--rate", "2", "--json")
	require.Zero(t, code, errOut)
	var p plan
	require.NoError(t, json.Unmarshal([]byte(out), &p))
	require.InDelta(t, 0.75, p.Levels[0].Share, 1e-9)
	require.InDelta(t, 8, p.Lookups, 1e-9)
	require.InDelta(t, 2, p.Computed, 1e-9)
	require.Nil(t, p.Computing)
	require.NotNil(t, p.Links)

	require.NoError(t, os.WriteFile(path, []byte("a\nb=x\n"), 0o600))
	_, errOut, code = ringcache(t, "serve", "plan", "--trace", path, "--object", "1MiB", "--rate", "2")
	require.Equal(t, 1, code)
	require.Contains(t, errOut, path+": line 2: ")
}

func TestServePlanRefuses(t *testing.T) {
	folder := t.TempDir()
	for args, want := range map[string]string{
		"--rate 0 --object 1MiB --objects 10":                                                       "--rate must be above 0",
		"--rate NaN --object 1MiB --objects 10":                                                     "--rate must be above 0",
		"--rate 1 --object 1MiB":                                                                    "--objects must be from 1",
		"--rate 1 --objects 10":                                                                     "--object is missing",
		"--rate 1 --object 1XB --objects 10":                                                        "is no size",
		"--rate 1 --object 1MiB --objects 10 --zipf=-1":                                             "--zipf must be from 0 to 5",
		"--rate 1 --object 1MiB --objects 10 --once 1":                                              "--once must be from 0",
		"--rate 1 --object 1MiB --objects 10 --hosts 0":                                             "--hosts must be from 1",
		"--rate 1 --object 1MiB --objects 10 --store 0":                                             "leave --store out",
		"--rate 1 --object 1MiB --objects 10 --store 1GiB --host-link fast":                         "is no rate",
		"--rate 1 --object 1MiB --objects 10 --store 1GiB --host-link=-1Gbit":                       "is no rate",
		"--rate 1 --object 1MiB --objects 10 --store-link 1Gbit":                                    "--store is not",
		"--rate 1 --object 1MiB --objects 10 --cost=-1s":                                            "--cost is negative",
		"--rate 1 --object 1MiB --objects 10 --chain":                                               "--chain is about the lines of --trace",
		"--rate 1 --object 2GiB --objects 10":                                                       "raise size",
		"--rate 1 --object 1MiB --objects 10 --trace /dev/null":                                     "give one of them",
		"--rate 1 --object 1MiB --objects 10 --disk " + folder:                                      "set disk-size",
		"--rate 1 --object 1MiB --objects 10 --redis localhost:1":                                   "give its maxmemory by --store",
		"--rate 1 --object 1MiB --objects 10 --disk-size 1GiB":                                      "disk is not",
		"--rate 1 --object 1MiB --objects 10 --redis localhost:1 --redis-write around":              "must be back",
		"--rate 1 --object 1MiB --objects 10 --folder /mnt/shared":                                  "by --store, or all",
		"--rate 1 --object 1MiB --objects 10 --s3 s3://bucket?endpoint=http://localhost:1":          "by --store, or all",
		"--rate 1 --object 1MiB --objects 10 --store all --s3 s3://bucket --s3-write around":        "must be back",
		"--rate 1 --object 1MiB --objects 10 --disk-size 1GiB --disk-write around --disk " + folder: "must be back",
	} {
		_, errOut, code := ringcache(t, append([]string{"serve", "plan"}, strings.Fields(args)...)...)
		require.NotZero(t, code, args)
		require.Contains(t, errOut, want, args)
		require.NotContains(t, errOut, "panic")
	}
}
