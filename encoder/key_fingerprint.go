package encoder

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/ringcache/ringcache/internal/spacename"
)

const (
	maxFingerprintField = 4096 // bytes
	readableModel       = 64   // bytes of a model's name that stay readable
	readableOther       = 24
)

// Fingerprint is what two engines must share for the one to use the other's embeddings. Fields that differ in one
// byte make another fingerprint. What is not known stays empty, and then engines meet that differ in it.
// See docs/decisions.md, "Weights are told apart by samples of every tensor".
type Fingerprint struct {
	// Model is the name of the model, or the path of its folder, as the engine has it. It must not be empty.
	Model string
	// Revision identifies the weights: a commit, or a hash of the files. Two checkpoints under one path have
	// nothing else to tell them apart, since an mm_hash has only the path.
	Revision string
	// DType is torch's name of the dtype of the embeddings, such as "bfloat16". It must not be empty.
	DType string
	// Layout is how the embeddings lie in memory, in the user's own words: its number of dimensions, the
	// width of a row, what deep layers add to it.
	Layout string
	// Engine is the version of the engine.
	Engine string
	// Ranks and Rank are the number of workers that share an output between them, and which of them it is.
	// All workers of vLLM have the whole output, so both are 0.
	Ranks, Rank int
}

// Validate reports what is wrong with a fingerprint, as an fs.ErrInvalid.
func (f Fingerprint) Validate() error {
	for _, field := range f.fields() {
		if len(field.text) > maxFingerprintField {
			return fmt.Errorf("%w: the %s of a fingerprint has %d bytes, the most is %d",
				errInvalid, field.name, len(field.text), maxFingerprintField)
		}
	}
	switch {
	case f.Model == "":
		return fmt.Errorf("%w: a fingerprint needs a model, or embeddings of two models meet", errInvalid)
	case f.DType == "":
		return fmt.Errorf("%w: a fingerprint needs a dtype, or embeddings of two dtypes meet", errInvalid)
	case f.Ranks < 0 || f.Rank < 0 || f.Rank >= max(f.Ranks, 1):
		return fmt.Errorf("%w: rank %d of %d in a fingerprint", errInvalid, f.Rank, f.Ranks)
	}
	return nil
}

type fingerprintField struct{ name, text string }

func (f Fingerprint) fields() [5]fingerprintField {
	return [...]fingerprintField{{"model", f.Model}, {"revision", f.Revision}, {"dtype", f.DType}, {"layout", f.Layout},
		{"engine", f.Engine}}
}

// Space returns the fingerprint as the Space of keys in package tier: readable parts, and the first 128 bits
// of a SHA-256 of all fields, as in "Qwen2-VL-2B-Instruct.bfloat16.0.33.0.54998c34ef5ba11bc332b0a8cf866294".
// It has fewer than 255 bytes, which are ASCII letters, digits, "-", "_" and ".", and begins with none of the
// last three, so it is a fine name of a file, too. It is part of what lies on disks, so it stays the same in
// every release; docs/format.md has its bytes.
func (f Fingerprint) Space() (string, error) {
	if err := f.Validate(); err != nil {
		return "", err
	}
	h := sha256.New()
	h.Write([]byte("ringcache encoder fingerprint 1\x00"))
	for _, field := range f.fields() {
		h.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(field.text))))
		h.Write([]byte(field.text))
	}
	h.Write(binary.LittleEndian.AppendUint64(nil, uint64(f.Ranks)))
	h.Write(binary.LittleEndian.AppendUint64(nil, uint64(f.Rank)))
	// Of a path the end says most.
	model := strings.TrimRight(f.Model, "/")
	parts := []string{
		spacename.Readable(model[strings.LastIndexByte(model, '/')+1:], readableModel),
		spacename.Readable(f.DType, readableOther),
	}
	if f.Engine != "" {
		parts = append(parts, spacename.Readable(f.Engine, readableOther))
	}
	if f.Ranks > 0 {
		parts = append(parts, fmt.Sprintf("rank%dof%d", f.Rank, f.Ranks))
	}
	return strings.Join(append(parts, hex.EncodeToString(h.Sum(nil)[:16])), "."), nil
}
