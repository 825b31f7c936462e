// Package spacename makes the readable parts of the names of spaces, for package encoder and package kv. The
// names lie on disks, so they stay the same in every release.
package spacename

import (
	"strings"
	"unicode/utf8"
)

// Readable returns at most so many bytes of a text, with "_" for all but the simplest characters.
func Readable(text string, most int) string {
	var b strings.Builder
	for _, c := range text {
		if b.Len() == most {
			break
		}
		if c < utf8.RuneSelf && (c == '-' || c == '.' || '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' ||
			'a' <= c && c <= 'z') {
			b.WriteRune(c)
		} else {
			b.WriteByte('_')
		}
	}
	if s := strings.TrimLeft(b.String(), "-_."); s != "" {
		return s
	}
	return "x"
}
