package config

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// golden is a line of interop/test_config.py: a configuration with what LMCache read, or the options that
// LMCache has.
type golden struct {
	Kind string // engine, server, or table
	// A configuration. Want has what differs from the defaults, and is nil if LMCache refuses the
	// configuration, which is what Why says of a server.
	YAML      *string
	Environ   []string
	Connector string
	Release   string
	Args      []string
	Want      map[string]any
	Why       string
	// All options of a release: names, types and defaults. Release is that of a server.
	Table [][3]any
}

// meant are the differences that are there on purpose: refusals of what LMCache takes, by the words of the
// refusal. Each is of something that a person did not mean, or that no machine has.
var meant = map[string]string{
	"a list or a mapping for a text":        "is a text, and not a list or a mapping",
	"a number of more than 64 bits":         "has more digits than any machine counts",
	"something else in a list of texts":     "is a list of texts",
	"a character by its name":               "a character by its name",
	"a tag":                                 "is not read here",
	"JSON with NaN or Infinity":             "NaN and Infinity are no JSON",
	"a connector's list for extra_config":   "is JSON, and not an object",
	"a connector's number for extra_config": "is a mapping, or JSON",
	"a connector's nothing for a mapping":   "is nothing that the option takes",
}

// TestGolden reads what LMCache has read: the files in testdata, and the one that RINGCACHE_LMCACHE_CONFIGS
// names.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.jsonl")
	require.NoError(t, err)
	require.Len(t, files, 2)
	if more := os.Getenv("RINGCACHE_LMCACHE_CONFIGS"); more != "" {
		files = append(files, more)
	}
	for _, name := range files {
		f, err := os.Open(name)
		require.NoError(t, err)
		defer f.Close()
		counts, differ, cases := map[string]int{}, 0, 0
		in := bufio.NewScanner(f)
		in.Buffer(nil, 16<<20)
		for in.Scan() {
			var c golden
			require.NoError(t, json.Unmarshal(in.Bytes(), &c))
			if c.Kind == "table" {
				c.compareTable(t)
				continue
			}
			cases++
			outcome, text := c.compare()
			counts[c.Kind+" "+outcome]++
			if outcome == "different" {
				if differ++; differ <= 5 {
					t.Errorf("%s\n%s", in.Text(), text)
				}
			}
		}
		require.NoError(t, in.Err())
		for _, k := range slices.Sorted(maps.Keys(counts)) {
			t.Logf("%s: %d", k, counts[k])
		}
		for _, k := range []string{"engine equal", "engine refused by both", "server equal", "server refused by both"} {
			require.Greater(t, counts[k], 40, k)
		}
		t.Logf("%s: %d cases, %d different", name, cases, differ)
	}
}

func (c golden) compare() (outcome, text string) {
	read, err := c.load()
	switch {
	case err != nil && c.Want == nil:
		return "refused by both", ""
	case err != nil:
		for name, words := range meant {
			if strings.Contains(err.Error(), words) {
				return "meant: " + name, ""
			}
		}
		return "different", err.Error()
	case c.Want == nil:
		return "different", fmt.Sprintf("refused by LMCache alone: %s; problems %v", c.Why, read.Problems)
	}
	outcome = "equal"
	for s := range read.Settings() {
		want, ok := c.Want[s.Name]
		if !ok {
			want = canonical(s.Default)
		}
		if got := canonical(s.Value); !reflect.DeepEqual(got, want) {
			if name := read.meant(s.Name); name != "" {
				outcome = "meant: " + name
				continue
			}
			return "different", fmt.Sprintf("%s is %v, and %v of LMCache", s.Name, got, want)
		}
	}
	return outcome, ""
}

// meant names the difference that a problem with an option makes.
func (c *Config) meant(option string) string {
	for _, p := range c.Problems {
		name := strings.ToLower(p.Name)
		if name != option && name != "lmcache_"+option && name != "lmcache."+option {
			continue
		}
		for name, words := range meant {
			if strings.Contains(p.Text, words) {
				return name
			}
		}
	}
	return ""
}

func (c golden) load() (*Config, error) {
	if c.Kind == "server" {
		return LoadServer(c.Release, c.Args, c.Environ)
	}
	s := Sources{Environ: c.Environ, Connector: c.Connector, Name: "f"}
	if c.YAML != nil {
		s.File = []byte(*c.YAML)
	}
	return s.Load()
}

// canonical is a value in the form of the Python half.
func canonical(v any) any {
	switch v := v.(type) {
	case int64:
		return map[string]any{"i": strconv.FormatInt(v, 10)}
	case float64:
		if math.IsNaN(v) {
			return map[string]any{"f": "nan"}
		}
		return map[string]any{"f": strconv.FormatUint(math.Float64bits(v), 16)}
	case []int64:
		return canonicalList(v)
	case []float64:
		return canonicalList(v)
	case []string:
		return canonicalList(v)
	case []any:
		return canonicalList(v)
	case map[string]any:
		pairs := map[string]any{}
		for k, e := range v {
			pairs[k] = canonical(e)
		}
		return map[string]any{"m": pairs}
	}
	return v
}

func canonicalList[T any](v []T) any {
	all := []any{}
	for _, e := range v {
		all = append(all, canonical(e))
	}
	return all
}

// compareTable compares the options of a release with those here, so that a new one is noticed.
func (c golden) compareTable(t *testing.T) {
	t.Helper()
	here := map[string]Option{}
	for o := range Options() {
		if c.Release == "" && !o.Server || c.Release != "" && o.in(c.Release) {
			here[o.Name] = o
		}
	}
	for _, row := range c.Table {
		name := row[0].(string)
		o, ok := here[name]
		if !ok {
			t.Errorf("%s is an option of LMCache only", name)
			continue
		}
		require.Equal(t, row[1], o.Type, name)
		require.Equal(t, row[2], canonical(o.Default), name)
		delete(here, name)
	}
	require.Empty(t, here, "options here only")
}
