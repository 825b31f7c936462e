package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// The lines around the table of the page.
const (
	pageBegin = "<!-- The table is written by `go generate ./daemon/wire` from daemon/wire/wire.go. -->\n"
	pageEnd   = "<!-- The end of the table. -->\n"
)

// fill returns the page with its table of all fields written anew.
func (t *table) fill(page []byte) ([]byte, error) {
	before, rest, begins := bytes.Cut(page, []byte(pageBegin))
	_, after, ends := bytes.Cut(rest, []byte(pageEnd))
	if !begins || !ends {
		return nil, errors.New("the page has no place for the table of fields")
	}
	var b bytes.Buffer
	b.Write(before)
	b.WriteString(pageBegin + "\n| map | key | value | there |\n|---|---|---|---|\n")
	for _, m := range t.maps {
		name := "`" + t.keyOf(m) + "`"
		if m.top() {
			name = "a " + strings.ToLower(m.name)
		}
		for _, f := range m.fields {
			x, err := t.value(f)
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(&b, "| %s | `%s` | %s | %s |\n", name, f.key, x.words, t.when(f))
		}
	}
	b.WriteString("\n" + pageEnd)
	b.Write(after)
	return b.Bytes(), nil
}

// keyOf returns the key under which a map is.
func (t *table) keyOf(inner message) string {
	var keys []string
	for _, m := range t.maps {
		for _, f := range m.fields {
			typ := strings.TrimLeft(f.typ, "[]*")
			if lower(typ[strings.Index(typ, ".")+1:]) == lower(inner.name) {
				keys = append(keys, f.key)
			}
		}
	}
	return strings.Join(keys, "`, `")
}

// when says when a field is there.
func (t *table) when(f field) string {
	var parts []string
	if f.needed {
		parts = append(parts, "always")
	}
	ops := func(list []string) string { return strings.ToLower("`" + strings.Join(list, "`, `") + "`") }
	if len(f.needs) > 0 {
		parts = append(parts, ops(f.needs))
	}
	if len(f.may) > 0 {
		parts = append(parts, "maybe "+ops(f.may))
	}
	if f.since != "" {
		parts = append(parts, "feature `"+f.since+"`")
	}
	return strings.Join(parts, "; ")
}
