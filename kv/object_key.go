package kv

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// An ObjectKey is the name of one chunk of one worker and group in LMCache's multiprocess mode
// (lmcache/v1/distributed/api.py of 0.5.6; 0.5.7 has the same).
type ObjectKey struct {
	Hash  []byte // of the chunk: 1 to 64 bytes
	Model string // without @
	Rank  Rank
	Group uint32 // 0 in a model with one group
	// Salt is the cache_salt, which sets the objects of one user apart from those of others: at most 128 characters,
	// without @, slash, backslash and NUL. "" is none.
	Salt string
}

const maxHash = 64 // bytes

// Validate reports what is wrong with a key.
func (k ObjectKey) Validate() error { return invalid(k.check()) }

func (k ObjectKey) check() error {
	if len(k.Hash) == 0 || len(k.Hash) > maxHash {
		return fmt.Errorf("hash of %d bytes; 1 to %d are possible", len(k.Hash), maxHash)
	}
	if err := checkModel(k.Model); err != nil {
		return err
	}
	return checkSalt(k.Salt)
}

// AppendText appends the key as LMCache's native, RESP and S3 adapters write it:
// MODEL@RANK@GROUP@HASH, and @SALT if there is one.
func (k ObjectKey) AppendText(dst []byte) ([]byte, error) {
	if err := k.Validate(); err != nil {
		return nil, err
	}
	return k.append(dst, k.Model, ""), nil
}

func (k ObjectKey) append(dst []byte, model, prefix string) []byte {
	dst = append(append(append(dst, model...), separator...), prefix...)
	var rank [4]byte
	binary.BigEndian.PutUint32(rank[:], uint32(k.Rank))
	dst = hex.AppendEncode(dst, rank[:])
	dst = strconv.AppendUint(append(dst, separator...), uint64(k.Group), 16)
	dst = hex.AppendEncode(append(dst, separator...), k.Hash)
	if k.Salt != "" {
		dst = append(append(dst, separator...), k.Salt...)
	}
	return dst
}

// ParseObjectKey reads what AppendText writes, and nothing else.
func ParseObjectKey(text string) (ObjectKey, error) {
	k, err := parseObjectKey(text, "")
	if err != nil {
		return ObjectKey{}, invalid(fmt.Errorf("object key %q: %w", text, err))
	}
	return k, nil
}

func parseObjectKey(text, prefix string) (ObjectKey, error) {
	fields := strings.Split(text, separator)
	if len(fields) != 4 && len(fields) != 5 {
		return ObjectKey{}, fmt.Errorf("it has %d fields between @; there are model, rank, group, hash and, possibly, a salt", len(fields))
	}
	k := ObjectKey{Model: fields[0]}
	rank, found := strings.CutPrefix(fields[1], prefix)
	if !found {
		return k, fmt.Errorf("the rank %q does not begin with %q", fields[1], prefix)
	}
	n, err := hexadecimal("rank", rank, 8)
	if err != nil {
		return k, err
	}
	k.Rank = Rank(n)
	if k.Group, err = hexadecimal("group", fields[2], 0); err != nil {
		return k, err
	}
	if k.Hash, err = hex.DecodeString(fields[3]); err != nil || hex.EncodeToString(k.Hash) != fields[3] {
		return k, fmt.Errorf("the hash %q is not bytes as hexadecimal digits in small letters", fields[3])
	}
	if len(fields) == 5 {
		if k.Salt = fields[4]; k.Salt == "" {
			return k, errors.New("it ends with an @, and no salt is behind it")
		}
	}
	return k, k.check()
}

// Where the names of files differ from keys (lmcache/v1/distributed/l2_adapters/fs_l2_adapter.py of 0.5.6).
const (
	fileSlash   = "-SEP-"
	fileSuffix  = ".data"
	filePrefix  = "0x"
	maxFileName = 255
)

// FileName returns the name of the key's file in LMCache's FS adapter, in which a slash of the model is -SEP-. A model
// that has -SEP- in its own name is refused, since its file would be that of another model.
func (k ObjectKey) FileName() (string, error) {
	if err := k.Validate(); err != nil {
		return "", err
	}
	model := strings.ReplaceAll(k.Model, "/", fileSlash)
	name := string(k.append(nil, model, filePrefix)) + fileSuffix
	if strings.ReplaceAll(model, fileSlash, "/") != k.Model {
		return "", invalid(fmt.Errorf("the file of the model %q would be that of another one, for %s", k.Model, fileSlash))
	}
	if len(name) > maxFileName {
		return "", invalid(fmt.Errorf("the file of a key has a name of %d bytes; the most is %d", len(name), maxFileName))
	}
	return name, nil
}

// ParseFileName reads what FileName returns, and nothing else.
func ParseFileName(name string) (ObjectKey, error) {
	stem, found := strings.CutSuffix(name, fileSuffix)
	if !found {
		return ObjectKey{}, invalid(fmt.Errorf("file name %q: it does not end with %s", name, fileSuffix))
	}
	k, err := parseObjectKey(stem, filePrefix)
	if err != nil {
		return ObjectKey{}, invalid(fmt.Errorf("file name %q: %w", name, err))
	}
	k.Model = strings.ReplaceAll(k.Model, fileSlash, "/")
	if again, err := k.FileName(); err != nil || again != name {
		return ObjectKey{}, invalid(fmt.Errorf("file name %q: the file of that key has another name, or none", name))
	}
	return k, nil
}
