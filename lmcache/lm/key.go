package lm

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ringcache/ringcache/kv"
	"github.com/ringcache/ringcache/tier"
)

// Spaces of values in a tier.Store. Untyped values are not what typed ones are: they have no dtype and shape, and
// are what LMCache's first engine made of a chunk.
const (
	Space        = "lmcache-lm"
	SpaceUntyped = "lmcache-lm-untyped"
)

// KeyOf returns the key of a value in a tier.Store, which is the same for all spellings of an engine's key that
// LMCache's server takes for one: zeros in front of numbers, and capitals in the hash, mean nothing. Releases up
// to 0.3.5 at least have other keys, FMT@MODEL@WORLD@WORKER@HASH, which are taken as they are, and those of Untyped are
// any text.
func (f Form) KeyOf(text string) (tier.Key, error) {
	if f == Untyped {
		if text == "" || !utf8.ValidString(text) || strings.IndexByte(text, 0) >= 0 {
			return tier.Key{}, invalid("the key %q is empty, or no text", text)
		}
		return tier.Key{Space: SpaceUntyped, Name: text}, nil
	}
	k, err := kv.ParseEngineKey(shortest(text))
	if err == nil {
		b, err := k.AppendText(nil)
		return tier.Key{Space: Space, Name: string(b)}, err
	}
	if !isOldKey(text) {
		return tier.Key{}, err
	}
	return tier.Key{Space: Space, Name: text}, nil
}

// shortest writes the numbers of an engine's key in their shortest form.
func shortest(text string) string {
	fields := strings.Split(text, "@")
	for i := range fields {
		switch i {
		case 1, 2, 5:
			if isDecimal(fields[i]) {
				fields[i] = withoutZeros(fields[i])
			}
		case 3:
			digits, minus := strings.CutPrefix(strings.ToLower(fields[i]), "-")
			if digits = withoutZeros(digits); minus && digits != "0" {
				digits = "-" + digits
			}
			fields[i] = digits
		}
	}
	return strings.Join(fields, "@")
}

// withoutZeros returns a number without the zeros in front of it.
func withoutZeros(digits string) string {
	if short := strings.TrimLeft(digits, "0"); short != "" || digits == "" {
		return short
	}
	return "0"
}

func isDecimal(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

// isOldKey reports whether a text is FMT@MODEL@WORLD@WORKER@HASH, with or without a layer and tags behind it. Where the
// model would be a number, it is today's key of an unknown dtype, MODEL@WORLD@WORKER@HASH@DTYPE.
func isOldKey(text string) bool {
	fields := strings.Split(text, "@")
	return len(fields) >= 5 &&
		fields[1] != "" && !isDecimal(fields[1]) &&
		isDecimal(fields[2]) && isDecimal(fields[3]) && fields[4] != "" &&
		strings.IndexFunc(text, unicode.IsControl) < 0
}
