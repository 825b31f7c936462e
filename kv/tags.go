package kv

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

const tagPrefix = "lmcache.tag."

// ParseTags returns the tags among the options of a request: those whose names begin with lmcache.tag., in
// their order. options is the JSON object in which LMCache's look-ups have them, or empty. A number, a truth
// value and null become the texts that Python has for them; other values can't be part of a key.
func ParseTags(options []byte) ([]Tag, error) {
	if len(options) == 0 {
		return nil, nil
	}
	tags, err := parseTags(options)
	if err == nil {
		err = checkTags(tags)
	}
	if err != nil {
		return nil, invalid(fmt.Errorf("options of a request: %w", err))
	}
	return tags, nil
}

func parseTags(options []byte) ([]Tag, error) {
	d := json.NewDecoder(bytes.NewReader(options))
	d.UseNumber()
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.Join(errors.New("they are no JSON object"), err)
	}
	var tags []Tag
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		var value any
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		name, found := strings.CutPrefix(t.(string), tagPrefix)
		if !found {
			continue
		}
		text, err := tagText(value)
		if err != nil {
			return nil, fmt.Errorf("the tag %q: %w", name, err)
		}
		if i := slices.IndexFunc(tags, func(t Tag) bool { return t.Name == name }); i >= 0 {
			tags[i].Value = text // as in a Python dict
		} else if tags = append(tags, Tag{name, text}); len(tags) > maxTags {
			return nil, fmt.Errorf("more than %d tags", maxTags)
		}
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is something behind the object")
	}
	return tags, nil
}

// tagText returns Python's text of a value. Python writes numbers to JSON as the same texts.
func tagText(value any) (string, error) {
	switch v := value.(type) {
	case string:
		return v, nil
	case json.Number:
		return v.String(), nil
	case bool:
		if v {
			return "True", nil
		}
		return "False", nil
	case nil:
		return "None", nil
	}
	return "", errors.New("its value is a list or an object")
}
