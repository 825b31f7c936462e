package tree

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/ringcache/ringcache/tier"
)

// The files of a root that are not objects.
const (
	OwnDir     = ".ringcache"
	LockPath   = OwnDir + "/lock" // contains the identity of the root
	TempDir    = OwnDir + "/tmp"
	LeavingDir = OwnDir + "/leaving"
)

// Formats of roots.
const (
	FormatAlone  = 1 // one process at a time has the root: package disk
	FormatShared = 2 // several have it, on several hosts: package folder
)

// Identity is the content of the lock file: what kind of root this is.
type Identity struct {
	Format int    `json:"format"`
	Layout string `json:"layout"`
	// Space is the only space of the root; null is any.
	Space *string `json:"space"`
}

// maxIdentity is the longest lock file that is read, in bytes.
const maxIdentity = 4096

// ReadIdentity returns nil for an empty file, or one of zeros: the process that made the root was killed, or
// a power failure came, before the content was written. The next open writes it.
func ReadIdentity(f io.ReaderAt) (*Identity, error) {
	b, err := io.ReadAll(io.NewSectionReader(f, 0, maxIdentity+1))
	if err != nil {
		return nil, err
	}
	if strings.Trim(string(b), "\x00") == "" {
		return nil, nil
	}
	var id Identity
	if err := json.Unmarshal(b, &id); err != nil || len(b) > maxIdentity {
		return nil, fmt.Errorf("disk: the file %s is damaged: remove it, if the folder is a root, and open the root: %w",
			LockPath, tier.ErrCorrupt)
	}
	return &id, nil
}
