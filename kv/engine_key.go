package kv

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/ringcache/ringcache/internal/torchdtype"
)

// An EngineKey is the name of one chunk of one worker in LMCache's in-process engine, and so on lm://, in Redis and in
// the FS connector (CacheEngineKey and LayerCacheEngineKey in lmcache/utils.py of 0.5.6).
type EngineKey struct {
	Model         string // without @
	World, Worker int
	Hash          string // a number in hexadecimal digits, as Hasher.Text returns it
	DType         string // torch's name, such as "bfloat16"
	Layered       bool   // whether the object is of one layer
	Layer         int    // which one
	Tags          []Tag  // in their order, which is part of the key
}

// A Tag is an option of a request that is part of its keys: lmcache.tag.NAME.
type Tag struct{ Name, Value string }

const (
	maxEngineWorld = 1 << 16
	maxEngineHash  = 64 // digits
	maxTags        = 64
	maxTag         = 1024 // bytes of a name or value
	tagMark        = "%"
)

// Validate reports what is wrong with a key.
func (k EngineKey) Validate() error { return invalid(k.check()) }

func (k EngineKey) check() error {
	if err := checkModel(k.Model); err != nil {
		return err
	}
	if k.World < 1 || k.World > maxEngineWorld || k.Worker < 0 || k.Worker > maxEngineWorld {
		return fmt.Errorf("worker %d in a world of %d; %d is the most", k.Worker, k.World, maxEngineWorld)
	}
	if err := checkEngineHash(k.Hash); err != nil {
		return err
	}
	if torchdtype.Find(k.DType) == nil {
		return fmt.Errorf("dtype %q: LMCache has no keys for it", k.DType)
	}
	if k.Layer < 0 || k.Layer > math.MaxInt32 || k.Layer > 0 && !k.Layered {
		return fmt.Errorf("layer %d, layered %t", k.Layer, k.Layered)
	}
	return checkTags(k.Tags)
}

func checkEngineHash(hash string) error {
	digits := strings.TrimPrefix(hash, "-")
	if digits == "" || len(digits) > maxEngineHash || strings.Trim(digits, "0123456789abcdef") != "" || digits[0] == '0' && hash != "0" {
		return fmt.Errorf("hash %q: it is no number of 1 to %d hexadecimal digits, in small letters, without zeros in front", hash, maxEngineHash)
	}
	return nil
}

func checkTags(tags []Tag) error {
	if len(tags) > maxTags {
		return fmt.Errorf("%d tags; the most is %d", len(tags), maxTags)
	}
	for i, t := range tags {
		if len(t.Name) > maxTag || len(t.Value) > maxTag {
			return fmt.Errorf("tag %d: more than %d bytes", i, maxTag)
		}
		if strings.ContainsAny(t.Name, "@%\x00") || strings.ContainsAny(t.Value, "@\x00") {
			return fmt.Errorf("tag %q: there is an @ or NUL in it, or a %% in its name", t.Name+tagMark+t.Value)
		}
		for _, other := range tags[:i] {
			if other.Name == t.Name {
				return fmt.Errorf("the tag %q is there twice", t.Name)
			}
		}
	}
	return nil
}

// AppendText appends the key: MODEL@WORLD@WORKER@HASH@DTYPE, then @LAYER if it is of one layer, then @NAME%VALUE for
// each tag.
func (k EngineKey) AppendText(dst []byte) ([]byte, error) {
	if err := k.Validate(); err != nil {
		return nil, err
	}
	dst = fmt.Appendf(dst, "%s@%d@%d@%s@%s", k.Model, k.World, k.Worker, k.Hash, torchdtype.Find(k.DType).LMCache)
	if k.Layered {
		dst = strconv.AppendInt(append(dst, separator...), int64(k.Layer), 10)
	}
	for _, t := range k.Tags {
		dst = append(append(append(append(dst, separator...), t.Name...), tagMark...), t.Value...)
	}
	return dst, nil
}

// ParseEngineKey reads what AppendText writes, and nothing else. LMCache's own parser takes more: capitals, zeros and
// 0x in front of numbers, digits of other scripts.
func ParseEngineKey(text string) (EngineKey, error) {
	k, err := parseEngineKey(text)
	if err != nil {
		return EngineKey{}, invalid(fmt.Errorf("engine key %q: %w", text, err))
	}
	return k, nil
}

func parseEngineKey(text string) (EngineKey, error) {
	fields := strings.SplitN(text, separator, 6+maxTags+1)
	if len(fields) < 5 || len(fields) > 6+maxTags {
		return EngineKey{}, fmt.Errorf("it has %d or more fields between @; model, world, worker, hash, dtype are needed, and %d is the most",
			len(fields), 6+maxTags)
	}
	k := EngineKey{Model: fields[0], Hash: fields[3]}
	var err error
	if k.World, err = decimal("world", fields[1], maxEngineWorld); err != nil {
		return k, err
	}
	if k.Worker, err = decimal("worker", fields[2], maxEngineWorld); err != nil {
		return k, err
	}
	dtype := torchdtype.FindLMCache(fields[4])
	if dtype == nil {
		return k, fmt.Errorf("LMCache has no dtype %q", fields[4])
	}
	k.DType = dtype.Name
	rest := fields[5:]
	if len(rest) > 0 && rest[0] != "" && strings.Trim(rest[0], "0123456789") == "" {
		k.Layered = true
		if k.Layer, err = decimal("layer", rest[0], math.MaxInt32); err != nil {
			return k, err
		}
		rest = rest[1:]
	}
	for _, field := range rest {
		name, value, found := strings.Cut(field, tagMark)
		if !found {
			return k, fmt.Errorf("%q is no layer in its place, and no tag, which has a %s", field, tagMark)
		}
		k.Tags = append(k.Tags, Tag{name, value})
	}
	return k, k.check()
}
