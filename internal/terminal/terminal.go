// Package terminal makes texts of others fit for a terminal, which obeys control characters, and shows text in another
// order than it has if there are characters that say so.
package terminal

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable reports whether a text can be shown as it is: it is UTF-8, and has no characters but those that
// are seen, and blanks. Control characters (C0, C1) and characters of format (of direction, without a width,
// U+FEFF) are not seen, nor are the ends of lines.
func Printable(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

// Text returns a text as it is, or quoted in Go's way if it can't be shown so.
func Text(s string) string {
	if Printable(s) {
		return s
	}
	return strconv.Quote(s)
}

// Quote returns a text as it is, or quoted in Go's way if it can't be shown so, or would not be seen as one word.
func Quote(s string) string {
	if q := strconv.Quote(s); q != `"`+s+`"` || strings.ContainsRune(s, ' ') {
		return q
	}
	return s
}

// Lines returns a text of several lines with escapes in Go's way for everything that can't be shown, but ends of lines.
func Lines(s string) string {
	if Printable(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case r == '\n' || unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			q := strconv.QuoteRune(r)
			b.WriteString(q[1 : len(q)-1])
		}
		s = s[n:]
	}
	return b.String()
}

// Error returns an error with the text Lines of err's, which it wraps; nil of nil.
func Error(err error) error {
	if err == nil {
		return nil
	}
	return shown{err}
}

type shown struct{ error }

func (e shown) Error() string { return Lines(e.error.Error()) }
func (e shown) Unwrap() error { return e.error }

// JSON returns a JSON text of the same value, with escapes (\u0085) for all characters beyond ASCII that
// can't be shown, and for DEL. Those can only be in its strings. It returns b itself if there are none.
func JSON(b []byte) []byte {
	at := next(b)
	if at == len(b) {
		return b
	}
	out := make([]byte, 0, len(b)+16)
	for len(b) > 0 {
		out = append(out, b[:at]...)
		if b = b[at:]; len(b) == 0 {
			break
		}
		r, n := utf8.DecodeRune(b)
		if r > 0xffff {
			r -= 0x10000
			out = fmt.Appendf(out, `\u%04x`, 0xd800+r>>10)
			r = 0xdc00 + r&0x3ff
		}
		out = fmt.Appendf(out, `\u%04x`, r)
		b = b[n:]
		at = next(b)
	}
	return out
}

// next returns the place of the first character of a JSON text that is to be escaped, or the length.
func next(b []byte) int {
	for i := 0; i < len(b); {
		if b[i] < utf8.RuneSelf {
			if b[i] == 0x7f {
				return i
			}
			i++
			continue
		}
		r, n := utf8.DecodeRune(b[i:])
		if !unicode.IsPrint(r) || r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return len(b)
}

// Writer returns a writer of JSON, which takes whole texts in each Write, and passes them on as by JSON.
func Writer(w io.Writer) io.Writer { return writer{w} }

type writer struct{ w io.Writer }

func (w writer) Write(b []byte) (int, error) {
	if _, err := w.w.Write(JSON(b)); err != nil {
		return 0, err
	}
	return len(b), nil
}
