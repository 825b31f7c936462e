package disk

import (
	"path"
	"strings"
)

// subfolder is a folder below the root that has files of entries, or such folders. It counts as one block of
// the capacity and as one item.
type subfolder struct {
	path string
	in   *subfolder // the folder around it; nil is the root
	uses int32      // entries and subfolders in it; at 0 it leaves the index
	kept int32      // the uses that are not being removed; at 0 the folder itself is about to be removed
}

// enterFolder counts e in its folder and the folders around it, and leaveFolder takes that back.
func (x *index) enterFolder(e *entry) {
	e.folder = x.addUse(e.folder)
	x.addKept(e.folder)
}

func (x *index) leaveFolder(e *entry) {
	x.dropKept(e.folder)
	x.dropUse(e.folder)
	if e.folder != nil {
		e.folder = &subfolder{path: e.folder.path} // e.path is still needed, and that one is not in the index
	}
}

// missing returns how many folders the file of e needs that the index does not have.
func (x *index) missing(e *entry) (n int) {
	if e.folder != nil {
		for p := e.folder.path; p != "." && x.subfolders[p] == nil; p = path.Dir(p) {
			n++
		}
	}
	return n
}

// addUse counts a use of the folder with the path of p, and returns the folder that is in the index.
func (x *index) addUse(p *subfolder) *subfolder {
	if p == nil {
		return nil
	}
	known := x.subfolders[p.path]
	if known == nil {
		known = &subfolder{path: strings.Clone(p.path)}
		known.in = x.addUse(subfolderOf(known.path))
		x.subfolders[known.path] = known
		x.emptying++
	}
	known.uses++
	return known
}

// dropUse takes a use back. A folder without uses leaves the index, and so may the folders around it.
func (x *index) dropUse(p *subfolder) {
	for ; p != nil; p = p.in {
		if p.uses--; p.uses > 0 {
			return
		}
		delete(x.subfolders, p.path)
		x.emptying--
	}
}

// addKept counts one more use of a folder that is not being removed, and dropKept one less.
func (x *index) addKept(p *subfolder) {
	for ; p != nil; p = p.in {
		if p.kept++; p.kept > 1 {
			return
		}
		x.emptying--
	}
}

func (x *index) dropKept(p *subfolder) {
	for ; p != nil; p = p.in {
		if p.kept--; p.kept > 0 {
			return
		}
		x.emptying++
	}
}

// subfolderOf returns a folder with the path around p that is in no index; nil for the root.
func subfolderOf(p string) *subfolder {
	if parent := path.Dir(p); parent != "." {
		return &subfolder{path: parent}
	}
	return nil
}
