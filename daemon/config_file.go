package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxConfigFile is the most bytes of a configuration file.
const maxConfigFile = 1 << 20

// fromFile returns what a file has, by key.
func fromFile(path string) (values map[string]given, problems []string) {
	f, err := os.Open(path)
	if err != nil {
		return nil, []string{"the configuration file can't be read: " + err.Error()}
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxConfigFile+1))
	switch {
	case err != nil:
		return nil, []string{"the configuration file can't be read: " + err.Error()}
	case len(b) > maxConfigFile:
		return nil, []string{fmt.Sprintf("%s has more than %d bytes, and so is no configuration file",
			path, maxConfigFile)}
	}
	return parseFile(path, b)
}

// parseFile reads a file: one mapping of keys to texts and lists of texts. Nodes are not converted, so that what
// is written is what is meant: off is no false, and 0x10 no 16.
func parseFile(path string, b []byte) (values map[string]given, problems []string) {
	d := yaml.NewDecoder(bytes.NewReader(b))
	var document, second yaml.Node
	err := d.Decode(&document)
	if errors.Is(err, io.EOF) {
		return nil, nil // nothing but comments
	}
	if err != nil {
		return nil, []string{fmt.Sprintf("%s is no YAML file: %v", path, err)}
	}
	if err := d.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, []string{
			fmt.Sprintf("%s has something behind its first document: a configuration is one YAML mapping", path),
		}
	}
	if len(document.Content) != 1 || document.Content[0].Kind != yaml.MappingNode {
		return nil, []string{fmt.Sprintf("%s is no mapping: write lines such as `size: 4GiB`", path)}
	}
	values = map[string]given{}
	pairs := document.Content[0].Content
	for i := 0; i+1 < len(pairs); i += 2 {
		key, value := pairs[i], pairs[i+1]
		origin := fmt.Sprintf("line %d of %s", key.Line, path)
		refuse := func(text string) { problems = append(problems, fmt.Sprintf("%s (%s): %s", key.Value, origin, text)) }
		texts, wrong := textsOf(value)
		switch old, twice := values[key.Value]; {
		case key.Kind != yaml.ScalarNode:
			problems = append(problems, origin+": a key must be the name of a setting")
		case find(key.Value) == nil:
			problems = append(problems, unknown(fmt.Sprintf("%s: key %q", origin, key.Value), key.Value, "%s"))
		case twice:
			refuse("is in " + old.origin + ", too: remove one of them")
		case wrong != "":
			refuse(wrong)
		default:
			values[key.Value] = given{texts, origin}
		}
	}
	return values, problems
}

// textsOf returns the text of a scalar, or the texts of a list of scalars.
func textsOf(n *yaml.Node) (texts []string, wrong string) {
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		return nil, "has no value: remove the line, or write \"\" for none"
	case n.Kind == yaml.ScalarNode:
		return []string{n.Value}, ""
	case n.Kind == yaml.SequenceNode:
		for _, e := range n.Content {
			if e.Kind != yaml.ScalarNode || e.Tag == "!!null" {
				return nil, "is a list with something else than texts in it"
			}
			texts = append(texts, e.Value)
		}
		return texts, ""
	}
	return nil, "must be a text or a list of texts"
}

// YAML returns the configuration as a file that [Sources.Load] takes, with all settings.
func (c Config) YAML() ([]byte, error) {
	root := &yaml.Node{Kind: yaml.MappingNode}
	for _, s := range settings {
		value := &yaml.Node{}
		texts := s.texts(c)
		if _, isList := s.value(c).([]string); isList {
			value.Kind = yaml.SequenceNode
			for _, t := range texts {
				value.Content = append(value.Content, scalar(t))
			}
		} else {
			value = scalar(texts[0])
		}
		root.Content = append(root.Content, scalar(s.key), value)
	}
	b, err := yaml.Marshal(root)
	if err != nil {
		return nil, fmt.Errorf("daemon: the configuration as YAML: %w", err)
	}
	return b, nil
}

// plain are texts that mean the same without quotes.
var plain = regexp.MustCompile(`^[A-Za-z0-9/][A-Za-z0-9/._+=,-]*(:[A-Za-z0-9/._+=,-]+)*$`)

// scalar is a text, in quotes where YAML might take it for something else.
func scalar(text string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: text}
	if !plain.MatchString(text) || strings.EqualFold(text, "null") {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}
