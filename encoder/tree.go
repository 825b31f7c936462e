package encoder

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"unicode/utf8"

	"github.com/ringcache/ringcache/encoder/safetensors"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/disk"
)

// A Tree is the [disk.Layout] of the folder in which vLLM's ECExampleConnector (shared_storage_path) keeps
// outputs of encoders: ROOT/MM_HASH/encoder_cache.safetensors, with one tensor, ec_cache
// (vllm/distributed/ec_transfer/ec_connector/example_connector.py, from 0.13.0 on). Connectors read what a
// Tree wrote, and a Tree reads what connectors wrote. The bytes of an object are those of its tensor, and its
// Note is that of [Note].
//
// A Tree adds to the metadata of its files, which connectors do not look at: a checksum of the bytes and one
// of the description, and what the object has of Parent, Tenant and Cost. Files of connectors have none of this.
//
// The name of a key is a folder, so an empty name, ".", "..", ".ringcache", a slash, more than 255 bytes, and
// what is not UTF-8, are refused as an fs.ErrInvalid. So are objects that are no tensor of a dtype of
// safetensors.
//
// Connectors create files with mode 0600 and rename them into their place.
//
// Files do not contain the space of their keys: a root has one, [disk.Options].Space.
type Tree struct {
	// Plain leaves the metadata away: files are byte for byte those of connectors, and
	// Parent, Tenant, Cost and the checksum are lost. It can change from one start to the next.
	Plain bool
}

var _ disk.Layout = Tree{}

const (
	treeFile   = "encoder_cache.safetensors"
	treeTensor = "ec_cache"
	// treeMost is the longest header. Texts of an object take at most 6 bytes for each of theirs, so that its
	// own are far shorter.
	treeMost = 1 << 20
	// reservedFolder is the folder of package disk in every root.
	reservedFolder = ".ringcache"
)

// Name implements [disk.Layout].
func (t Tree) Name() string { return "vllm-ec" }

// Path implements [disk.Layout].
func (t Tree) Path(k tier.Key) (string, error) {
	if err := k.Validate(); err != nil {
		return "", err
	}
	switch {
	case k.Name == "." || k.Name == ".." || k.Name == reservedFolder:
	case strings.Contains(k.Name, "/") || len(k.Name) > 255 || !utf8.ValidString(k.Name):
	default:
		return k.Name + "/" + treeFile, nil
	}
	return "", fmt.Errorf("encoder: %v can't be a folder of the tree: %w", k, fs.ErrInvalid)
}

// AppendHead implements [disk.Layout].
func (t Tree) AppendHead(dst []byte, o tier.Object, sum uint32) ([]byte, error) {
	if err := o.Validate(); err != nil {
		return dst, err
	}
	if _, err := t.Path(o.Key); err != nil {
		return dst, err
	}
	note, err := noteOf(o)
	if err != nil {
		return dst, err
	}
	dtype, shape, ok := note.inFile()
	if !ok {
		return dst, fmt.Errorf("encoder: object %v: safetensors have no %v: %w", o.Key, note, fs.ErrInvalid)
	}
	tensors := []safetensors.Tensor{{Name: treeTensor, DType: dtype, Shape: shape}}
	if t.Plain {
		return safetensors.AppendHeader(dst, nil, tensors)
	}
	metadata := metadataOf(o, sum)
	check, err := treeChecksum(metadata, tensors)
	if err != nil {
		return dst, err
	}
	metadata[treeCheck] = check
	return safetensors.AppendHeader(dst, metadata, tensors)
}

// ParseHead implements [disk.Layout]. What connectors load is never a tier.ErrCorrupt: a file with other
// tensors than theirs, or with a dtype that torch lacks, is foreign, too. A damaged checksum or description
// of a Tree's own file is.
func (t Tree) ParseHead(path string, file io.ReaderAt, size int64) (disk.Head, error) {
	name, rest, _ := strings.Cut(path, "/")
	o := tier.Object{Key: tier.Key{Name: name}}
	if _, err := t.Path(o.Key); err != nil || rest != treeFile {
		return disk.Head{}, fmt.Errorf("encoder: %q is no path of the tree: %w", path, disk.ErrPath)
	}
	header, err := safetensors.ReadHeader(file, size, treeMost)
	switch {
	case errors.Is(err, safetensors.ErrFormat) || errors.Is(err, io.ErrUnexpectedEOF):
		return disk.Head{}, fmt.Errorf("encoder: file %s: %w: %w", path, tier.ErrCorrupt, err)
	case err != nil:
		return disk.Head{}, fmt.Errorf("encoder: file %s: %w", path, err)
	case len(header.Tensors) != 1 || header.Tensors[0].Name != treeTensor:
		return disk.Head{}, fmt.Errorf("encoder: file %s has other tensors than %s: %w",
			path, treeTensor, fs.ErrInvalid)
	}
	tensor := header.Tensors[0]
	// its text is no longer than a note may be: Size limits the dimensions
	note, ok := noteOfFile(tensor.DType, tensor.Shape)
	if _, err := note.Size(); !ok || err != nil {
		return disk.Head{}, fmt.Errorf("encoder: file %s is of %s and %d dimensions, which torch has not: %w",
			path, tensor.DType, len(tensor.Shape), fs.ErrInvalid)
	}
	o.Size, o.Note = tensor.Size, []byte(note.String())
	head := disk.Head{Object: o, Length: header.Length}
	if err := readMetadata(&head, header.Metadata, []safetensors.Tensor{tensor}); err != nil {
		return disk.Head{}, fmt.Errorf("encoder: file %s: %w: %w", path, tier.ErrCorrupt, err)
	}
	return head, nil
}
