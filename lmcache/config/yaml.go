package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Limits of a file.
const (
	maxFile   = 1 << 20 // bytes
	maxValues = 1 << 14 // values, after aliases are followed
	maxDepth  = 100     // of lists and mappings in each other
)

// reader makes Python's values of YAML nodes, as PyYAML's safe loader does: by the rules of YAML 1.1, and
// with a few of its own.
type reader struct {
	name   string
	values int
	depth  int
}

// line is a place in the file.
func (r *reader) line(n *yaml.Node) string { return fmt.Sprintf("line %d of %s", n.Line, r.name) }

// entry is a key of the file with its value.
type entry struct {
	key    any
	value  any
	origin string
	own    bool // not of a mapping that is merged in
}

// readFile returns the entries of a file: a mapping, or nothing. LMCache takes a false value for nothing.
// repeated are the places of keys that are there twice, of which the last one counts.
func readFile(name string, b []byte) (entries []entry, repeated []Problem, err error) {
	r := &reader{name: name}
	if len(b) > maxFile {
		return nil, nil, fmt.Errorf("%s has more than %d bytes, and so is no configuration", name, maxFile)
	}
	d := yaml.NewDecoder(bytes.NewReader(b))
	var document, second yaml.Node
	switch err := d.Decode(&document); {
	case errors.Is(err, io.EOF):
		return nil, nil, nil
	case err != nil:
		return nil, nil, fmt.Errorf("%s is no YAML file: %w", name, err)
	}
	if err := d.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, nil, fmt.Errorf("%s has something behind its first document", name)
	}
	root := document.Content[0]
	if err := r.anchors(root, map[string]bool{}); err != nil {
		return nil, nil, err
	}
	if root.Kind != yaml.MappingNode {
		v, err := r.value(root)
		if err == nil && truth(v) {
			err = fmt.Errorf("%s: a configuration is a mapping: write lines such as `chunk_size: 256`", r.line(root))
		}
		return nil, nil, err
	}
	pairs, err := r.pairs(root)
	if err != nil {
		return nil, nil, err
	}
	for _, p := range pairs {
		key, err := r.key(p[0])
		if err != nil {
			return nil, nil, err
		}
		value, err := r.value(p[1])
		if err != nil {
			return nil, nil, err
		}
		e := entry{key, value, r.line(p[0]), slices.Contains(root.Content, p[0])}
		i := slices.IndexFunc(entries, func(o entry) bool { return o.key == key })
		if i < 0 {
			entries = append(entries, e)
			continue
		}
		if e.own && entries[i].own {
			repeated = append(repeated, Problem{
				e.origin, text(key),
				"is also in " + entries[i].origin + ", which LMCache does not see: remove one of them",
			})
		}
		entries[i] = e
	}
	return entries, repeated, nil
}

// anchors refuses an anchor that is there twice.
func (r *reader) anchors(n *yaml.Node, seen map[string]bool) error {
	if n.Anchor != "" && seen[n.Anchor] {
		return fmt.Errorf("%s: the anchor %s is there already", r.line(n), short(n.Anchor))
	}
	seen[n.Anchor] = true
	for _, e := range n.Content {
		if err := r.anchors(e, seen); err != nil {
			return err
		}
	}
	return nil
}

// pairs returns keys and values of a mapping, those of merge keys (<<) in front.
func (r *reader) pairs(n *yaml.Node) (all [][2]*yaml.Node, err error) {
	if err := r.enter(n); err != nil {
		return nil, err
	}
	defer func() { r.depth-- }()
	var own [][2]*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if !plain(key) || key.Value != "<<" {
			own = append(own, [2]*yaml.Node{key, value})
			continue
		}
		value = follow(value)
		from := []*yaml.Node{value}
		if value.Kind == yaml.SequenceNode {
			from = slices.Clone(value.Content)
			slices.Reverse(from) // the first one wins
		}
		for _, m := range from {
			if m = follow(m); m.Kind != yaml.MappingNode {
				return nil, fmt.Errorf("%s: << takes mappings", r.line(key))
			}
			p, err := r.pairs(m)
			if err != nil {
				return nil, err
			}
			if all = append(all, p...); len(all) > maxValues {
				return nil, r.tooMany(n)
			}
		}
	}
	return append(all, own...), nil
}

// enter counts a value, and how deep it is. Aliases make many of few.
func (r *reader) enter(n *yaml.Node) error {
	r.values++
	r.depth++
	switch {
	case r.depth > maxDepth:
		return fmt.Errorf("%s: nested too deeply", r.line(n))
	case r.values > maxValues:
		return r.tooMany(n)
	}
	return nil
}

func (r *reader) tooMany(n *yaml.Node) error {
	return fmt.Errorf("%s: more than %d values", r.line(n), maxValues)
}

func follow(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// plain reports whether a scalar is without quotes and tag.
func plain(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Style == 0 }

func (r *reader) value(n *yaml.Node) (any, error) {
	if err := r.enter(n); err != nil {
		return nil, err
	}
	defer func() { r.depth-- }()
	n = follow(n)
	if n.Style&yaml.TaggedStyle != 0 {
		return r.tagged(n)
	}
	switch n.Kind {
	case yaml.ScalarNode:
		if !plain(n) {
			return n.Value, nil
		}
		return r.resolve(n)
	case yaml.SequenceNode:
		all := make([]any, 0, len(n.Content))
		for _, e := range n.Content {
			v, err := r.value(e)
			if err != nil {
				return nil, err
			}
			all = append(all, v)
		}
		return all, nil
	case yaml.MappingNode:
		pairs, err := r.pairs(n)
		if err != nil {
			return nil, err
		}
		d := dict{}
		for _, p := range pairs {
			key, err := r.key(p[0])
			if err != nil {
				return nil, err
			}
			value, err := r.value(p[1])
			if err != nil {
				return nil, err
			}
			d = d.put(key, value)
		}
		return d, nil
	}
	return nil, fmt.Errorf("%s: not a value", r.line(n))
}

// key returns a key that can be compared, or an error for one that Python takes for no key.
func (r *reader) key(n *yaml.Node) (any, error) {
	key, err := r.value(n)
	switch key := key.(type) {
	case []any, dict:
		return nil, fmt.Errorf("%s: a list or a mapping is no key", r.line(n))
	case *big.Int:
		return key.String(), nil
	}
	return key, err
}

// tagged reads a value with a tag of its own.
func (r *reader) tagged(n *yaml.Node) (any, error) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" {
		return n.Value, nil
	}
	return nil, fmt.Errorf("%s: the tag %s is not read here: write the value without it", r.line(n), n.Tag)
}

// The forms of plain scalars in YAML 1.1, as PyYAML has them.
var (
	yamlInt = regexp.MustCompile(
		`^(?:[-+]?0b[01_]+|[-+]?0[0-7_]+|[-+]?(?:0|[1-9][0-9_]*)` +
			`|[-+]?0x[0-9a-fA-F_]+|[-+]?[1-9][0-9_]*(?::[0-5]?[0-9])+)$`)
	yamlFloat = regexp.MustCompile(
		`^(?:[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?` +
			`|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?` +
			`|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$`)
	yamlDay  = regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}$`)
	yamlTime = regexp.MustCompile(
		`^[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt]|[ \t]+)` +
			`[0-9]{1,2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]*)?(?:[ \t]*(?:Z|[-+][0-9]{1,2}(?::[0-9]{2})?))?$`)
)

func (r *reader) resolve(n *yaml.Node) (any, error) {
	s := n.Value
	switch s {
	case "", "~", "null", "Null", "NULL":
		return nil, nil
	case "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON":
		return true, nil
	case "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF":
		return false, nil
	case "=", "<<":
		return nil, fmt.Errorf("%s: %q without quotes is no value", r.line(n), s)
	}
	switch {
	case yamlFloat.MatchString(s):
		return yamlFloatOf(strings.ToLower(strings.ReplaceAll(s, "_", ""))), nil
	case yamlInt.MatchString(s):
		v, ok := yamlIntOf(strings.ReplaceAll(s, "_", ""))
		if !ok {
			return nil, fmt.Errorf("%s: %q is no number", r.line(n), short(s))
		}
		return v, nil
	case yamlDay.MatchString(s):
		if d, err := time.Parse(time.DateOnly, s); err != nil || d.Year() == 0 {
			return nil, fmt.Errorf("%s: there is no day %q", r.line(n), s)
		}
		return date(s), nil
	case yamlTime.MatchString(s):
		return nil, fmt.Errorf("%s: %q is a time, and no setting is one: write it in quotes", r.line(n), s)
	}
	return s, nil
}

// sign takes the sign of a number away.
func sign(s string) (negative bool, rest string) {
	if s[0] == '-' || s[0] == '+' {
		return s[0] == '-', s[1:]
	}
	return false, s
}

func yamlIntOf(s string) (any, bool) {
	negative, s := sign(s)
	n, ok := new(big.Int), true
	switch {
	case len(s) > maxDigits: // Python takes more in other bases, for a number that no option does
		ok = false
	case s == "0":
	case strings.HasPrefix(s, "0b"):
		n, ok = n.SetString(s[2:], 2)
	case strings.HasPrefix(s, "0x"):
		n, ok = n.SetString(s[2:], 16)
	case s[0] == '0':
		n, ok = n.SetString(s, 8)
	case strings.Contains(s, ":"):
		for part := range strings.SplitSeq(s, ":") {
			digit, _ := new(big.Int).SetString(part, 10)
			n.Add(n.Mul(n, big.NewInt(60)), digit)
		}
	default:
		n, ok = n.SetString(s, 10)
	}
	if !ok {
		return nil, false
	}
	if negative {
		n.Neg(n)
	}
	return narrow(n), true
}

func yamlFloatOf(s string) float64 {
	negative, s := sign(s)
	f := 0.0
	switch {
	case s == ".inf":
		f = math.Inf(1)
	case s == ".nan":
		f = math.NaN()
	case strings.Contains(s, ":"):
		base := 1.0
		parts := strings.Split(s, ":")
		for _, p := range slices.Backward(parts) {
			digit, _ := strconv.ParseFloat(p, 64)
			f += digit * base
			base *= 60
		}
	default:
		f, _ = strconv.ParseFloat(s, 64)
	}
	if negative {
		return -f
	}
	return f
}
