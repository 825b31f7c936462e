package config

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ringcache/ringcache/internal/sentinel"
)

// errInvalid is what every refusal of this package wraps. It is an fs.ErrInvalid.
var errInvalid = sentinel.New(sentinel.Invalid, "lmcache/config: invalid configuration")

// Sources are where an engine's configuration comes from.
type Sources struct {
	// File is the YAML file of LMCACHE_CONFIG_FILE, and Name what messages call it. Without a file, which is
	// nil, the environment is everything.
	File []byte
	Name string
	// Environ is the environment of the engine's process, as os.Environ has it.
	Environ []string
	// Connector is kv_connector_extra_config of vLLM's --kv-transfer-config, as JSON. Its keys lmcache.NAME
	// win over all else.
	Connector string
}

// Setting is an option with its value.
type Setting struct {
	Option
	// Value is as that of Option.Default. It is nil, too, where LMCache could not read what was given.
	Value any
	// Origin is where the value was given, such as "line 3 of lmcache.yaml", and empty for a default.
	Origin string

	given bool // LMCache has it among those that a user has set
}

// Problem is something that LMCache passes over in silence or with a line in its log, and that is hardly
// meant: a name that is no option, a value that is not read, a key that is there twice.
type Problem struct {
	Origin string // as that of a Setting
	Name   string // as it was written
	Text   string
}

// String is a line for people, with the place that the value came from.
func (p Problem) String() string { return fmt.Sprintf("%s (%s): %s", p.Name, p.Origin, p.Text) }

// Config is a configuration as LMCache reads it. The zero value is not valid; see [Sources.Load] and
// [LoadServer].
type Config struct {
	// Problems are what LMCache does not mind. Who sets up LMCache minds.
	Problems []Problem

	server     bool
	settings   []Setting
	encoder    []Setting // what was given for LMCache's own cache of encoder outputs
	deprecated []Setting // given by an old name that LMCache still takes
	environ    map[string]string
	known      bool // that environ is that of the process
}

// Settings are all options with their values, in the order of Options.
func (c *Config) Settings() iter.Seq[Setting] { return slices.Values(c.settings) }

// Get returns a setting. It panics if there is no option of that name, which is a mistake of the program.
func (c *Config) Get(name string) Setting { return *c.at(name) }

func (c *Config) at(name string) *Setting {
	i := slices.IndexFunc(c.settings, func(s Setting) bool { return s.Name == name })
	if i < 0 {
		panic("lmcache/config: there is no option " + name)
	}
	return &c.settings[i]
}

func (c *Config) problem(origin, name, format string, args ...any) {
	c.Problems = append(c.Problems, Problem{origin, name, fmt.Sprintf(format, args...)})
}

// Load reads a configuration. What LMCache refuses is an error, which names the place; what LMCache passes
// over is among the Problems of the configuration.
func (s Sources) Load() (*Config, error) {
	c, err := s.load()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errInvalid, err)
	}
	return c, nil
}

func (s Sources) load() (*Config, error) {
	c := &Config{environ: map[string]string{}, known: s.Environ != nil}
	for _, o := range engineOptions {
		c.settings = append(c.settings, Setting{Option: o, Value: o.Default})
	}
	if err := c.readEnviron(s.Environ); err != nil {
		return nil, err
	}
	if s.File != nil {
		if err := c.readFile(s.Name, s.File); err != nil {
			return nil, err
		}
	}
	// LMCache makes an id of its own when it has read the first of its sources.
	ownID := func() {
		if id := c.at("lmcache_instance_id"); !truth(id.Value) {
			id.Value = nil
		}
	}
	if s.File != nil {
		ownID()
	}
	if err := c.applyEnviron(s.File != nil); err != nil {
		return nil, err
	}
	if s.File == nil {
		ownID()
	}
	if err := c.validate(); err != nil {
		return nil, err
	}
	if s.Connector != "" {
		if err := c.applyConnector(s.Connector); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// readEnviron takes the environment. Of a name that is there twice the last one counts, as for Python.
func (c *Config) readEnviron(environ []string) error {
	for _, e := range environ {
		name, value, ok := strings.Cut(e, "=")
		if !ok || name == "" {
			continue
		}
		if strings.HasPrefix(name, variablePrefix) && (!utf8.ValidString(value) || strings.ContainsRune(value, 0)) {
			return fmt.Errorf("%s is no UTF-8", name)
		}
		c.environ[name] = value
	}
	return nil
}

func (c *Config) readFile(name string, b []byte) error {
	entries, repeated, err := readFile(name, b)
	if err != nil {
		return err
	}
	c.Problems = append(c.Problems, repeated...)
	for _, e := range entries {
		key, ok := e.key.(string)
		if !ok {
			c.problem(e.origin, text(e.key), "is no option, and LMCache ignores it")
			continue
		}
		if c.encoderEntry(key, e) {
			continue
		}
		o, ok := c.option(key, key, e.origin)
		if !ok {
			continue
		}
		if err := c.set(o, key, e.value, e.origin, false); err != nil {
			return err
		}
	}
	return nil
}

// option finds an option by its name, or an old one. written is what stands in the file or the environment.
func (c *Config) option(name, written, origin string) (Option, bool) {
	o, ok := find(name)
	if !ok {
		if o, ok = find(aliases[name]); ok {
			c.deprecated = append(c.deprecated, Setting{Option: o, Value: written, Origin: origin})
		}
	}
	switch newer, old := ignored[name]; {
	case ok:
	case old:
		c.problem(origin, written, "is an old name that LMCache ignores: write %s", newer)
	default:
		c.problem(origin, written, "is no option, and LMCache ignores it%s", similar(name))
	}
	return o, ok
}

// set converts and sets a value. One that LMCache can't read leaves the option as it is if keep is set, else
// without a value.
func (c *Config) set(o Option, name string, v any, origin string, keep bool) error {
	value, note, err := convert(o.Type, v)
	if missed := (*unreadError)(nil); errors.As(err, &missed) {
		if keep {
			c.problem(origin, name, "%v; LMCache ignores it", err)
			return nil
		}
		c.problem(origin, name, "%v; LMCache goes on without a value, and not with its default", err)
	} else if err != nil {
		return fmt.Errorf("%s (%s): %w", name, origin, err)
	}
	if note != "" {
		c.problem(origin, name, "%s", note)
	}
	if v == nil && o.Default != nil {
		c.problem(origin, name, "has no value, for which LMCache does not take its default: remove the line")
	}
	at := c.at(o.Name)
	at.Value, at.Origin, at.given = value, origin, true
	return nil
}

// applyEnviron reads variables, in the order in which LMCache does: old names behind those of today. over
// says that there was a file, which keeps its value where that of a variable is not read.
func (c *Config) applyEnviron(over bool) error {
	type found struct {
		name   string
		option Option
		value  string
	}
	var all []found
	for _, o := range engineOptions {
		if v, ok := c.environ[o.Variable()]; ok {
			all = append(all, found{o.Variable(), o, v})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.environ)) {
		key, ours := strings.CutPrefix(name, variablePrefix)
		if !ours || slices.Contains(otherVariables, key) {
			continue
		}
		lower := strings.ToLower(key)
		if _, ok := find(lower); ok && key == strings.ToUpper(lower) {
			continue
		}
		origin := "the variable " + name
		if inner, ok := strings.CutPrefix(key, "EC_"); ok {
			c.encoderOption(strings.ToLower(inner), name, c.environ[name], origin)
			continue
		}
		if strings.HasPrefix(key, "CONTROLLER_") && lower != "controller_url" {
			continue // of the controller's process
		}
		if key != strings.ToUpper(key) {
			c.problem(origin, name, "is no option, and LMCache ignores it%s", similar(lower))
		} else if o, ok := c.option(lower, name, origin); ok {
			all = append(all, found{name, o, c.environ[name]})
		}
	}
	for i, f := range all {
		// An old name's value stands in the place of the new one's, and is the only one that is read.
		if slices.ContainsFunc(all[i+1:], func(o found) bool { return o.option.Name == f.option.Name }) {
			c.problem("the variable "+f.name, f.name, "is overridden by its old name: remove one of them")
			continue
		}
		v, err := unquote(f.value)
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		if err := c.set(f.option, f.name, v, "the variable "+f.name, over); err != nil {
			return err
		}
	}
	return nil
}

// applyConnector reads what vLLM hands to its connector. LMCache passes over everything that is wrong there.
func (c *Config) applyConnector(s string) error {
	v, err := parseJSON(s)
	if err != nil {
		return fmt.Errorf("the configuration of the connector is no JSON: %w", err)
	}
	d, ok := v.(dict)
	if !ok {
		return errors.New("the configuration of the connector is no JSON object")
	}
	const origin = "the configuration of the connector"
	for _, p := range d {
		key := p.key.(string)
		name, ours := strings.CutPrefix(key, "lmcache.")
		if !ours || strings.HasPrefix(name, "mp.") {
			continue // of the connector itself
		}
		o, ok := find(name)
		if !ok {
			c.problem(origin, key, "is no option, and LMCache ignores it%s", similar(name))
			continue
		}
		value, note, err := convert(o.Type, p.value)
		_, isText := p.value.(string)
		if err == nil && p.value != nil && value == nil && (o.Type != typeMap || !isText) {
			err = errors.New("is nothing that the option takes")
		}
		if err != nil {
			c.problem(origin, key, "%v; LMCache ignores it", err)
			continue
		}
		if note != "" {
			c.problem(origin, key, "%s", note)
		}
		at := c.at(o.Name)
		at.Value, at.Origin = value, origin
	}
	return nil
}

// encoderEntry takes what LMCache reads for its cache of encoder outputs alone: ec_NAME, and names within ec.
func (c *Config) encoderEntry(key string, e entry) bool {
	lower := strings.ToLower(key)
	if d, ok := e.value.(dict); ok && lower == "ec" {
		for _, p := range d {
			if name, ok := p.key.(string); ok {
				c.encoderOption(strings.ToLower(strip(name)), "ec."+name, p.value, e.origin)
			} else {
				c.problem(e.origin, "ec."+text(p.key), "is no option, and LMCache ignores it")
			}
		}
		return true
	}
	inner, ok := strings.CutPrefix(lower, "ec_")
	if ok {
		c.encoderOption(strip(inner), key, e.value, e.origin)
	}
	return ok
}

// encoderOption takes one of them. Variables come behind the file. LMCache passes over everything that is
// wrong there.
func (c *Config) encoderOption(name, written string, v any, origin string) {
	for _, names := range []map[string]string{aliases, ignored, encoderAliases} {
		if newer, ok := names[name]; ok {
			name = newer
			break
		}
	}
	o, ok := find(name)
	if !ok {
		c.problem(origin, written, "is no option, and LMCache ignores it%s", similar(name))
		return
	}
	value, note, err := convert(o.Type, v)
	if err != nil {
		c.problem(origin, written, "%v; LMCache ignores it", err)
		return
	}
	if note != "" {
		c.problem(origin, written, "%s", note)
	}
	c.encoder = slices.DeleteFunc(c.encoder, func(s Setting) bool { return s.Name == name })
	c.encoder = append(c.encoder, Setting{Option: o, Value: value, Origin: origin})
}

// similar names the option that was perhaps meant.
func similar(name string) string {
	best, at := 3, ""
	for _, o := range engineOptions {
		if d := distance(name, o.Name, best); d < best {
			best, at = d, o.Name
		}
	}
	if at == "" {
		return ""
	}
	return "; is " + at + " meant?"
}

// distance counts the letters to change, add or remove; limit stands for that and more.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for i := range row {
		row[i] = i
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := before
			if a[i] != b[j] {
				change++
			}
			before = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return min(row[len(b)], limit)
}
