package tier

import (
	"fmt"
	"io/fs"
	"strings"
	"time"
)

// Limits of an object's texts, in bytes. They fit the heads of every level.
const (
	MaxSpace  = 255
	MaxName   = 1024
	MaxTenant = 255
	MaxNote   = 4096
)

// A Key names an object. Objects never change: equal keys mean equal bytes.
type Key struct {
	// Space is what two producers must share for their bytes to mean the same: a fingerprint
	// of model, revision, dtype, layout and engine version. Objects of different spaces
	// never meet.
	Space string
	// Name is the identity of the content inside the space: an mm_hash, a chunk's hash.
	Name string
}

// String is both texts, quoted.
func (k Key) String() string { return fmt.Sprintf("%q of space %q", k.Name, k.Space) }

// Validate reports what is wrong with a key, as an fs.ErrInvalid.
func (k Key) Validate() error {
	if err := checkText("space", k.Space, MaxSpace); err != nil {
		return err
	}
	if k.Name == "" {
		return fmt.Errorf("tier: the name of a key is empty: %w", fs.ErrInvalid)
	}
	return checkText("name", k.Name, MaxName)
}

// An Object describes the bytes under a key. Levels keep all of it beside the bytes.
type Object struct {
	Key
	// Size is the number of bytes. 0 is allowed.
	Size int64
	// Parent, if not empty, is the Name, in the same space, of the object without which this one is
	// worthless: the chunk in front of it. A level that knows parents evicts children first. Of objects that are
	// each other's parents, a level takes the one that comes last for one without a parent.
	Parent string
	// Tenant is who is charged for the bytes, in quotas; empty is nobody.
	Tenant string
	// Cost is the time that it takes to make the object anew. 0 is unknown. It is a hint, since nobody can
	// check it: beside what the same tenant usually says, it makes the object worth up to four times as much
	// as without one, never less, and it counts no more after the level was filled anew eight times without a
	// use of the object.
	Cost time.Duration
	// Note is the owner's description of the bytes, such as dtype and shape. Levels do not
	// look into it. It must not be changed after it was handed over.
	Note []byte
}

// ParentKey returns the key of the parent, and whether there is one.
func (o Object) ParentKey() (Key, bool) {
	return Key{Space: o.Space, Name: o.Parent}, o.Parent != ""
}

// Validate reports what is wrong with an object, as an fs.ErrInvalid.
func (o Object) Validate() error {
	if err := o.Key.Validate(); err != nil {
		return err
	}
	if err := checkText("parent", o.Parent, MaxName); err != nil {
		return err
	}
	if err := checkText("tenant", o.Tenant, MaxTenant); err != nil {
		return err
	}
	switch {
	case o.Parent == o.Name:
		return fmt.Errorf("tier: object %v is its own parent: %w", o.Key, fs.ErrInvalid)
	case o.Size < 0:
		return fmt.Errorf("tier: object %v has the size %d: %w", o.Key, o.Size, fs.ErrInvalid)
	case o.Cost < 0:
		return fmt.Errorf("tier: object %v has the cost %v: %w", o.Key, o.Cost, fs.ErrInvalid)
	case len(o.Note) > MaxNote:
		return fmt.Errorf("tier: the note of object %v has %d bytes, the most is %d: %w",
			o.Key, len(o.Note), MaxNote, fs.ErrInvalid)
	}
	return nil
}

// checkText refuses what is too long, and zero bytes, which separate texts in shared keys.
func checkText(what, text string, most int) error {
	if len(text) > most {
		return fmt.Errorf("tier: a %s has %d bytes, the most is %d: %w", what, len(text), most, fs.ErrInvalid)
	}
	if strings.IndexByte(text, 0) >= 0 {
		return fmt.Errorf("tier: a %s contains a zero byte: %q: %w", what, text, fs.ErrInvalid)
	}
	return nil
}
