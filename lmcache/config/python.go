package config

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Values of files and texts are Python's, since LMCache converts them by Python's rules.
// See docs/decisions.md, "LMCache's configuration is read by Python's rules".
//
//	None   nil
//	bool   itself
//	int    int64, or *big.Int if it is larger
//	float  float64
//	str    string
//	list   []any
//	dict   a type of ours, which keeps the order
//	date   a text of ours

// dict is a mapping whose order is that of the file.
type dict []pair

type pair struct{ key, value any }

// get returns the value of a key that is a text, and nil, which is None, for one that is missing.
func (d dict) get(name string) any {
	for _, p := range d {
		if p.key == name {
			return p.value
		}
	}
	return nil
}

// put sets the value of a key. A key that is there keeps its place.
func (d dict) put(key, value any) dict {
	for i := range d {
		if number(d[i].key) == number(key) {
			d[i].value = value
			return d
		}
	}
	return append(d, pair{key, value})
}

// number is a key as Python compares it: True, 1 and 1.0 are one.
func number(key any) any {
	switch k := key.(type) {
	case bool:
		if k {
			return int64(1)
		}
		return int64(0)
	case float64:
		if n := int64(k); float64(n) == k {
			return n
		}
	}
	return key
}

// date is a day, as Python writes it.
type date string

// truth is Python's bool(v).
func truth(v any) bool {
	switch v := v.(type) {
	case nil:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0 // NaN is true
	case string:
		return v != ""
	case []any:
		return len(v) > 0
	case dict:
		return len(v) > 0
	case map[string]any: // as it is published
		return len(v) > 0
	case []int64:
		return len(v) > 0
	}
	return true
}

// text is Python's str(v) of a scalar.
func text(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		if v {
			return "True"
		}
		return "False"
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return floatText(v)
	case *big.Int:
		return v.String()
	}
	return fmt.Sprint(v)
}

// floatText is Python's repr of a float: the shortest digits, with an exponent below 1e-4 and from 1e16 on.
func floatText(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 0):
		return strings.TrimPrefix(strings.ToLower(strconv.FormatFloat(f, 'g', -1, 64)), "+")
	case f != 0 && (math.Abs(f) < 1e-4 || math.Abs(f) >= 1e16):
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// strip is Python's str.strip, which takes four control characters for spaces that Unicode does not.
func strip(s string) string {
	return strings.TrimFunc(s, func(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f })
}

var (
	intDigits   = regexp.MustCompile(`^[+-]?[0-9]+(_[0-9]+)*$`)
	floatDigits = regexp.MustCompile(
		`^[+-]?([0-9]+(_[0-9]+)*\.?([0-9]+(_[0-9]+)*)?` +
			`|\.[0-9]+(_[0-9]+)*)([eE][+-]?[0-9]+(_[0-9]+)*)?$`)
	floatWords = regexp.MustCompile(`^[+-]?(?i:inf|infinity|nan)$`)
)

// maxDigits is the most digits that Python takes for an int.
const maxDigits = 4300

// parseInt is Python's int of a text, in digits of ASCII.
func parseInt(s string) (any, error) {
	digits := strings.ReplaceAll(strip(s), "_", "")
	if !intDigits.MatchString(strip(s)) || len(strings.TrimLeft(digits, "+-")) > maxDigits {
		return nil, fmt.Errorf("%q is no whole number", short(s))
	}
	n, _ := new(big.Int).SetString(strings.TrimPrefix(digits, "+"), 10)
	return narrow(n), nil
}

// narrow returns an int64 if the number fits one.
func narrow(n *big.Int) any {
	if n.IsInt64() {
		return n.Int64()
	}
	return n
}

// parseFloat is Python's float of a text, in digits of ASCII.
func parseFloat(s string) (float64, error) {
	s = strip(s)
	if !floatDigits.MatchString(s) && !floatWords.MatchString(s) {
		return 0, fmt.Errorf("%q is no number", short(s))
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
	if errors.Is(err, strconv.ErrRange) {
		err = nil // infinite, for Python, too
	}
	return f, err
}

// short bounds a text of a message.
func short(s string) string {
	if len(s) <= 200 {
		return s
	}
	return strings.ToValidUTF8(s[:200], "") + "..."
}

// unquote removes the quotes of a variable's value as LMCache does (_parse_quoted_string of config_base.py):
// a Python text in quotes, or several of them, is evaluated. What only begins and ends with a quote loses
// these two. A tuple of texts stays as it is.
func unquote(s string) (string, error) {
	if s == "" {
		return s, nil
	}
	s = strip(s)
	if len(s) < 2 || s[0] != s[len(s)-1] || s[0] != '\'' && s[0] != '"' {
		return s, nil
	}
	whole, tuple, ok := evaluate(s)
	switch {
	case !ok && strings.Contains(s, `\N{`):
		return "", errors.New(`a character by its name (\N) is not read: write the character`)
	case !ok:
		return s[1 : len(s)-1], nil
	case tuple:
		return s, nil
	}
	return whole, nil
}

// evaluate reads Python texts one behind the other, which are one text, or, if commas are between them, a
// tuple.
func evaluate(s string) (whole string, tuple, ok bool) {
	var all strings.Builder
	needed := true // a text has to follow
	for {
		s = strings.TrimLeft(s, " \t\f")
		switch {
		case s == "" || s[0] == '#' && !strings.Contains(s, "\n"):
			return all.String(), tuple, !needed || tuple
		case s[0] == ',' && !needed:
			tuple, needed, s = true, true, s[1:]
		case s[0] == '\'' || s[0] == '"':
			part, rest, ok := literal(s)
			if !ok {
				return "", false, false
			}
			all.WriteString(part)
			needed, s = false, rest
		default:
			return "", false, false
		}
	}
}

// literal reads one Python text, in one or three quotes.
func literal(s string) (value, rest string, ok bool) {
	quote := s[:1]
	long := strings.HasPrefix(s, strings.Repeat(quote, 3))
	if long {
		quote = s[:3]
	}
	s = s[len(quote):]
	var b strings.Builder
	for s != "" {
		switch {
		case strings.HasPrefix(s, quote):
			return b.String(), s[len(quote):], true
		case s[0] == '\\':
			n, ok := escape(&b, s)
			if !ok {
				return "", "", false
			}
			s = s[n:]
		case s[0] == '\n' && !long:
			return "", "", false
		default:
			b.WriteByte(s[0])
			s = s[1:]
		}
	}
	return "", "", false
}

// escape writes what a backslash at the front of s stands for, and returns how many bytes that takes.
func escape(b *strings.Builder, s string) (n int, ok bool) {
	if len(s) < 2 {
		return 0, false
	}
	if i := strings.IndexByte("\\'\"abfnrtv\n", s[1]); i >= 0 {
		if s[1] != '\n' {
			b.WriteByte("\\'\"\a\b\f\n\r\t\v"[i])
		}
		return 2, true
	}
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[s[1]]
	switch {
	case s[1] >= '0' && s[1] <= '7':
		end := 2
		for end < len(s) && end < 4 && s[end] >= '0' && s[end] <= '7' {
			end++
		}
		r, _ := strconv.ParseUint(s[1:end], 8, 32)
		b.WriteRune(rune(r))
		return end, true
	case digits > 0:
		if len(s) < 2+digits {
			return 0, false
		}
		r, err := strconv.ParseUint(s[2:2+digits], 16, 32)
		if err != nil || !utf8.ValidRune(rune(r)) || r > unicode.MaxRune {
			return 0, false
		}
		b.WriteRune(rune(r))
		return 2 + digits, true
	case s[1] == 'N':
		return 0, false // the name of a character
	}
	b.WriteByte('\\') // an escape that Python does not know stays
	return 1, true
}
