package kv

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// See docs/decisions.md, "LMCache's keys are read in one spelling".

const (
	separator = "@" // between the fields of keys
	maxModel  = 512 // bytes; LMCache has no limit
	maxSalt   = 128 // characters
)

// checkModel checks a model's name.
func checkModel(model string) error {
	switch {
	case model == "":
		return errors.New("model: the name is empty")
	case len(model) > maxModel:
		return fmt.Errorf("model: the name has %d bytes; the most is %d", len(model), maxModel)
	case !utf8.ValidString(model):
		return fmt.Errorf("model %q: no UTF-8", model)
	case strings.ContainsAny(model, "@\x00"):
		return fmt.Errorf("model %q: an @ separates the fields of keys, and NUL ends texts", model)
	}
	return nil
}

// checkSalt checks a cache_salt. LMCache has the same rules.
func checkSalt(salt string) error {
	switch {
	case !utf8.ValidString(salt):
		return fmt.Errorf("salt %q: no UTF-8", salt)
	case utf8.RuneCountInString(salt) > maxSalt:
		return fmt.Errorf("salt: %d characters; the most is %d", utf8.RuneCountInString(salt), maxSalt)
	case strings.ContainsAny(salt, "@/\\\x00"):
		return fmt.Errorf("salt %q: it must not have @, a slash, a backslash or NUL", salt)
	}
	return nil
}

// decimal reads a number as strconv.Itoa writes it.
func decimal(what, text string, most int) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > most || strconv.Itoa(n) != text {
		return 0, fmt.Errorf("the %s %q is no number from 0 to %d, or is not in its shortest form", what, text, most)
	}
	return n, nil
}

// hexadecimal reads a number of 32 bits as fmt's %0*x writes it: in small letters, with zeros in front up to width.
func hexadecimal(what, text string, width int) (uint32, error) {
	n, err := strconv.ParseUint(text, 16, 32)
	if err != nil || fmt.Sprintf("%0*x", width, n) != text {
		return 0, fmt.Errorf("the %s %q is not of 32 bits in hexadecimal, in small letters and %d or more digits", what, text, max(width, 1))
	}
	return uint32(n), nil
}
