package config

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/ringcache/ringcache/internal/terminal"
)

// maxCell is the most letters of an option's value in the table.
const maxCell = 40

// YAML returns the translation as a file for ringcache serve --config: settings, and in comments the warnings
// and the table of options, all of them or those that were given.
func (t *Translation) YAML(all bool) ([]byte, error) {
	var b strings.Builder
	for _, w := range t.Warnings {
		fmt.Fprintf(&b, "# warning: %s\n", terminal.Text(w))
	}
	quoted := func(text string) *yaml.Node {
		return &yaml.Node{Kind: yaml.ScalarNode, Style: yaml.DoubleQuotedStyle, Value: text}
	}
	root := &yaml.Node{Kind: yaml.MappingNode}
	for _, p := range t.Settings {
		value := quoted(p.Value)
		if list[p.Key] {
			value = &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
			for _, i := range strings.Split(p.Value, ",") {
				value.Content = append(value.Content, quoted(i))
			}
		}
		root.Content = append(root.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: p.Key}, value)
	}
	settings, err := yaml.Marshal(root)
	if err != nil {
		return nil, fmt.Errorf("lmcache/config: the settings as YAML: %w", err)
	}
	b.Write(settings)
	rows := [][3]string{{"LMCache's option", "value", "here"}}
	widths := [2]int{len(rows[0][0]), len(rows[0][1])}
	for _, r := range t.Rows {
		if r.Default && !all {
			continue
		}
		row := [3]string{terminal.Text(r.Option), terminal.Text(r.Value), terminal.Text(r.Here)}
		if utf8.RuneCountInString(row[1]) > maxCell {
			row[1] = string([]rune(row[1])[:maxCell-3]) + "..."
		}
		rows = append(rows, row)
		for i := range widths {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	b.WriteString("\n")
	for _, r := range rows {
		line := fmt.Sprintf("# %-*s  %-*s  %s", widths[0], r[0], widths[1], r[1], r[2])
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return []byte(b.String()), nil
}

// list are the settings of the daemon that are lists.
var list = map[string]bool{"lmcache": true, "lm": true, "http-key-file": true}
