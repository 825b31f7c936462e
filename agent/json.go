package agent

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// rawJSON is a JSON value that is decoded later. It is a part of the request's
// line, where a json.RawMessage is a copy: nested values would be copied once for
// each level. Whoever keeps one for longer than the request clones it.
type rawJSON []byte

// UnmarshalJSON keeps b. That is right only because everything here is decoded by
// json.Unmarshal, which passes parts of its own input, and because nobody writes to
// a line; a json.Decoder would reuse its buffer.
func (r *rawJSON) UnmarshalJSON(b []byte) error {
	*r = b
	return nil
}

// MarshalJSON is as that of json.RawMessage.
func (r rawJSON) MarshalJSON() ([]byte, error) { return json.RawMessage(r).MarshalJSON() }

// hexBytes are bytes as a hexadecimal string, decoded without a copy of the string.
type hexBytes []byte

// UnmarshalJSON decodes a JSON string.
func (h *hexBytes) UnmarshalJSON(b []byte) error {
	switch {
	case bytes.Equal(b, []byte("null")):
		return nil
	case len(b) < 2 || b[0] != '"':
		return errors.New("want a string of hexadecimal digits")
	case bytes.IndexByte(b, '\\') >= 0:
		var s string
		if err := json.Unmarshal(b, &s); err != nil {
			return err
		}
		b = []byte(s)
	default:
		b = b[1 : len(b)-1]
	}
	*h = make([]byte, hex.DecodedLen(len(b)))
	_, err := hex.Decode(*h, b)
	return err
}

// unmarshal is json.Unmarshal for a part of a line. It refuses names that no struct
// of into has, where encoding/json ignores them, or takes them for others that
// differ in case.
func unmarshal(b []byte, into any) error {
	if err := checkNames(b, reflect.TypeOf(into).Elem()); err != nil {
		return err
	}
	return json.Unmarshal(b, into)
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// checkNames checks the names in b for a value of type t. Values of a wrong type it
// leaves to json.Unmarshal, and types with a decoder of their own to that.
func checkNames(b []byte, t reflect.Type) error {
	if t.Implements(unmarshaler) || reflect.PointerTo(t).Implements(unmarshaler) {
		return nil
	}
	switch t.Kind() {
	case reflect.Pointer:
		return checkNames(b, t.Elem())
	case reflect.Slice, reflect.Array:
		if !hasNames(t.Elem()) {
			return nil
		}
		var elems []rawJSON
		if json.Unmarshal(b, &elems) != nil {
			return nil
		}
		for _, e := range elems {
			if err := checkNames(e, t.Elem()); err != nil {
				return err
			}
		}
	case reflect.Map:
		if !hasNames(t.Elem()) {
			return nil
		}
		var members map[string]rawJSON
		if json.Unmarshal(b, &members) != nil {
			return nil
		}
		for _, m := range members {
			if err := checkNames(m, t.Elem()); err != nil {
				return err
			}
		}
	case reflect.Struct:
		return checkMembers(b, t)
	}
	return nil
}

// hasNames reports whether checkNames has something to check in a value of type t.
func hasNames(t reflect.Type) bool {
	switch {
	case t.Implements(unmarshaler) || reflect.PointerTo(t).Implements(unmarshaler):
		return false
	case t.Kind() == reflect.Struct:
		return true
	case t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Array ||
		t.Kind() == reflect.Map:
		return hasNames(t.Elem())
	}
	return false
}

func checkMembers(b []byte, t reflect.Type) error {
	var members map[string]rawJSON
	if json.Unmarshal(b, &members) != nil {
		return nil
	}
	types := map[string]reflect.Type{}
	var names []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		types[name], names = t.Field(i).Type, append(names, name)
	}
	for name, m := range members {
		of, ok := types[name]
		if !ok {
			return unknownName(name, names)
		}
		if err := checkNames(m, of); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func unknownName(name string, known []string) error {
	return fmt.Errorf("unknown field %.80q; known are %s", name, strings.Join(known, ", "))
}

// errText is the error for text that Go's decoder would change: two different keys
// could become one.
var errText = errors.New("the text is not UTF-8, or an escape is one half of a surrogate pair; Python's surrogateescape has no place in a key")

// checkText checks that every string of a valid JSON text has a UTF-8 form.
func checkText(b []byte) error {
	if !utf8.Valid(b) {
		return errText
	}
	// A backslash is always inside a string, and begins an escape.
	for {
		at := bytes.IndexByte(b, '\\')
		if at < 0 {
			return nil
		}
		b = b[at:]
		unit, size := escape(b)
		b = b[size:]
		switch {
		case unit < 0xd800 || unit > 0xdfff:
		case unit >= 0xdc00: // the second half first
			return errText
		default:
			second, size := escape(b)
			if second < 0xdc00 || second > 0xdfff {
				return errText
			}
			b = b[size:]
		}
	}
}

// escape returns the UTF-16 unit of the escape \uXXXX that b begins with, and its
// length; 0 for another escape, or none.
func escape(b []byte) (unit uint64, size int) {
	if len(b) < 2 || b[0] != '\\' {
		return 0, 0
	}
	if b[1] != 'u' || len(b) < 6 {
		return 0, 2
	}
	unit, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	if err != nil {
		return 0, 2
	}
	return unit, 6
}

// sortedNames returns the names of fields in a fixed order.
func sortedNames(fields map[string]rawJSON) []string {
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
