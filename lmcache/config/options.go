package config

import (
	"iter"
	"slices"
	"strings"
)

// The types of options.
const (
	typeBool    = "bool"
	typeInt     = "int"
	typeFloat   = "float"
	typeText    = "text"
	typeInts    = "ints"
	typeFloats  = "floats"
	typeTexts   = "texts"
	typeFolders = "folders" // paths with commas between them, each with or without file://
	typeMap     = "map"     // a mapping, or JSON
	typePlugins = "plugins" // texts; a single one has no commas
	typeMode    = "mode"    // prefix_strict or skip_missing_chunks
)

// Option is a setting of LMCache. Value and Default are nil, which is none, or a bool, int64, float64,
// string, []int64, []float64, []string or map[string]any.
type Option struct {
	Name    string // of an engine chunk_size, of a server chunk-size
	Type    string // bool, int, float, text, ints, floats, texts, folders, map, plugins or mode
	Default any
	Server  bool // a flag of lmcache server, and no option of an engine

	since, until string   // releases of LMCache that have it, "" for all
	choices      []string // of a text, if it is one of few
	also         []string // other names
	form         form     // of a flag
	without      string   // why it has no meaning for the daemon
}

// Options are all that LMCache has, those of engines first.
func Options() iter.Seq[Option] {
	return slices.Values(slices.Concat(engineOptions, serverOptions))
}

// Variable is the name of the option in the environment, "" for a flag.
func (o Option) Variable() string {
	if o.Server {
		return ""
	}
	return variablePrefix + strings.ToUpper(o.Name)
}

// in reports whether a release's server has the flag.
func (o Option) in(release string) bool {
	return o.Server && (o.since == "" || o.since <= release) && (o.until == "" || o.until >= release)
}

const variablePrefix = "LMCACHE_"

func find(name string) (Option, bool) {
	i := slices.IndexFunc(engineOptions, func(o Option) bool { return o.Name == name })
	if i < 0 {
		return Option{}, false
	}
	return engineOptions[i], true
}
