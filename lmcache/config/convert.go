package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"slices"
	"strings"
)

// unreadError is a value that LMCache does not take, and goes on without.
type unreadError struct{ text string }

func (e *unreadError) Error() string { return e.text }

func unread(format string, args ...any) error {
	return &unreadError{fmt.Sprintf(format, args...)}
}

// convert makes the value of an option. The error is an *unreadError where LMCache goes on without the value,
// and another one where LMCache ends. note is what LMCache takes without a word, and hardly as it is meant.
func convert(t string, v any) (value any, note string, err error) {
	if v == nil {
		return nil, "", nil
	}
	switch t {
	case typeBool:
		return toBool(v)
	case typeInt:
		n, err := toInt(v)
		return value64(n, err)
	case typeFloat:
		f, err := toFloat(v)
		if err != nil {
			return nil, "", err
		}
		return f, "", nil
	case typeInts:
		return toList(v, func(v any) (int64, error) {
			n, _, err := value64(toInt(v))
			if err != nil {
				return 0, err
			}
			return n.(int64), nil
		}, func(v any) bool { _, b := v.(bool); _, i := v.(int64); _, big := v.(*big.Int); return b || i || big })
	case typeFloats:
		return toList(v, toFloat, func(v any) bool { _, f := v.(float64); return f })
	case typeTexts:
		s, isText := v.(string)
		if isText {
			return fields(s), "", nil
		}
		return toTexts(v)
	case typePlugins:
		switch {
		case !truth(v) && !isList(v):
			return []string{}, "", nil
		case isList(v):
			return toTexts(v)
		}
		return toTexts([]any{v})
	case typeMap:
		return toMap(v)
	}
	switch v.(type) {
	case []any, dict:
		return nil, "", errors.New("is a text, and not a list or a mapping")
	}
	s := text(v)
	switch t {
	case typeFolders:
		var folders []string
		for _, f := range fields(s) {
			folders = append(folders, strings.TrimPrefix(f, "file://"))
		}
		if folders == nil {
			return nil, "", nil
		}
		return strings.Join(folders, ","), "", nil
	case typeMode:
		mode := strings.ReplaceAll(strings.ToLower(strip(s)), "-", "_")
		switch mode {
		case "prefix_strict", "prefixstrict":
			return "prefix_strict", "", nil
		case "skip_missing_chunks", "skipmissingchunks", "legacy":
			return "skip_missing_chunks", "", nil
		}
		return nil, "", unread("%q is not prefix_strict or skip_missing_chunks", short(s))
	}
	return s, "", nil
}

// fields are the texts between commas, without spaces around them and without empty ones.
func fields(s string) []string {
	all := []string{}
	for f := range strings.SplitSeq(s, ",") {
		if f = strip(f); f != "" {
			all = append(all, f)
		}
	}
	return all
}

func isList(v any) bool { _, ok := v.([]any); return ok }

func toBool(v any) (value any, note string, err error) {
	if b, ok := v.(bool); ok {
		return b, "", nil
	}
	s := strings.ToLower(strip(text(v)))
	if isList(v) {
		s = "a list"
	} else if _, ok := v.(dict); ok {
		s = "a mapping"
	}
	if s == "true" || s == "1" {
		return true, "", nil
	}
	if !slices.Contains([]string{"false", "0", "", "none", "no", "off"}, s) {
		note = fmt.Sprintf("%q is false for LMCache: write true or false", short(s))
	}
	return false, note, nil
}

func value64(n any, err error) (value any, note string, _ error) {
	if err != nil {
		return nil, "", err
	}
	if _, ok := n.(int64); !ok {
		return nil, "", errors.New("has more digits than any machine counts")
	}
	return n, "", nil
}

// toInt is Python's int(v).
func toInt(v any) (any, error) {
	switch v := v.(type) {
	case bool:
		if v {
			return int64(1), nil
		}
		return int64(0), nil
	case int64, *big.Int:
		return v, nil
	case float64:
		if math.IsInf(v, 0) {
			return nil, errors.New("is infinite")
		}
		if math.IsNaN(v) {
			return nil, unread("is no number")
		}
		n, _ := big.NewFloat(v).Int(nil)
		return narrow(n), nil
	case string:
		n, err := parseInt(v)
		if err != nil {
			return nil, unread("%v", err)
		}
		return n, nil
	}
	return nil, errors.New("is a whole number, and nothing else")
}

// toFloat is Python's float(v).
func toFloat(v any) (float64, error) {
	switch v := v.(type) {
	case bool:
		if v {
			return 1, nil
		}
		return 0, nil
	case int64:
		return float64(v), nil
	case *big.Int:
		f, _ := new(big.Float).SetInt(v).Float64()
		if math.IsInf(f, 0) {
			return 0, errors.New("is larger than any number")
		}
		return f, nil
	case float64:
		return v, nil
	case string:
		f, err := parseFloat(v)
		if err != nil {
			return 0, unread("%v", err)
		}
		return f, nil
	}
	return 0, errors.New("is a number, and nothing else")
}

// toList makes numbers of a list, of one value if single says that it is one, and of a text with commas.
func toList[T any](v any, one func(any) (T, error), single func(any) bool) (value any, note string, err error) {
	items, ok := v.([]any)
	switch {
	case ok:
	case single(v):
		items = []any{v}
	default:
		switch v.(type) {
		case dict:
			return nil, "", unread("is a list, and no mapping")
		}
		for _, f := range fields(text(v)) {
			items = append(items, f)
		}
	}
	all := []T{}
	for _, item := range items {
		n, err := one(item)
		if err != nil {
			return nil, "", err
		}
		all = append(all, n)
	}
	return all, "", nil
}

// toTexts makes texts of a list. LMCache leaves its elements as they are.
func toTexts(v any) (value any, note string, err error) {
	items, ok := v.([]any)
	if !ok {
		return nil, "", errors.New("is a list of texts, or one text with commas")
	}
	all := []string{}
	for _, item := range items {
		switch item.(type) {
		case []any, dict, nil:
			return nil, "", errors.New("is a list of texts, and there is something else in it")
		}
		all = append(all, text(item))
	}
	return all, "", nil
}

// toMap takes a mapping, or JSON.
func toMap(v any) (value any, note string, err error) {
	if d, ok := v.(dict); ok {
		return published(d), "", nil
	}
	if !truth(v) {
		return nil, "", nil
	}
	s, ok := v.(string)
	if !ok {
		return nil, "", errors.New("is a mapping, or JSON")
	}
	if v, err = parseJSON(s); err != nil {
		if strings.Contains(s, "NaN") || strings.Contains(s, "Infinity") {
			return nil, "", errors.New("NaN and Infinity are no JSON, though Python takes them")
		}
		return nil, "", unread("is no JSON: %v", err)
	}
	switch v := v.(type) {
	case nil:
		return nil, "", nil
	case dict:
		return published(v), "", nil
	}
	return nil, "", errors.New("is JSON, and not an object")
}

// parseJSON reads one value of JSON.
func parseJSON(s string) (any, error) {
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber()
	v, err := jsonValue(d, 0)
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something is behind it")
	}
	return v, nil
}

// jsonValue reads a value in the order of its text.
func jsonValue(d *json.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, errors.New("nested too deeply")
	}
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch token := token.(type) {
	case json.Number:
		if strings.ContainsAny(string(token), ".eE") {
			return parseFloat(string(token))
		}
		return parseInt(string(token))
	case json.Delim:
		if token == '[' {
			list := []any{}
			for d.More() {
				v, err := jsonValue(d, depth+1)
				if err != nil {
					return nil, err
				}
				list = append(list, v)
			}
			_, err = d.Token()
			return list, err
		}
		all := dict{}
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			v, err := jsonValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			all = all.put(key, v)
		}
		_, err = d.Token()
		return all, err
	}
	return token, nil
}

// published is a value as users of the package see it: mappings have texts as keys, and large numbers are
// texts.
func published(v any) any {
	switch v := v.(type) {
	case dict:
		all := map[string]any{}
		for _, p := range v {
			all[text(p.key)] = published(p.value)
		}
		return all
	case []any:
		all := make([]any, len(v))
		for i, e := range v {
			all[i] = published(e)
		}
		return all
	case date:
		return string(v)
	case *big.Int:
		return v.String()
	}
	return v
}
