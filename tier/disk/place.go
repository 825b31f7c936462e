package disk

import (
	"path"
	"strings"
)

// place is a folder below the root with files of entries. It takes a block, as a file does.
type place struct {
	path  string
	in    *place // nil is the root
	uses  int32  // entries and places in it
	stays int32  // of them, those that are not leaving
}

// settle gives e its place among the folders, and unsettle takes it away.
func (x *index) settle(e *entry) {
	e.folder = x.use(e.folder)
	x.stay(e.folder)
}

func (x *index) unsettle(e *entry) {
	x.leave(e.folder)
	x.unuse(e.folder)
	if e.folder != nil {
		e.folder = &place{path: e.folder.path}
	}
}

// missing is how many folders a file needs that the index does not have.
func (x *index) missing(e *entry) (n int) {
	if e.folder != nil {
		for p := e.folder.path; p != "." && x.places[p] == nil; p = path.Dir(p) {
			n++
		}
	}
	return n
}

// use counts a use of a folder, of which p has the path, and returns the one that the index has.
func (x *index) use(p *place) *place {
	if p == nil {
		return nil
	}
	known := x.places[p.path]
	if known == nil {
		known = &place{path: strings.Clone(p.path)}
		known.in = x.use(placeOf(known.path))
		x.places[known.path] = known
		x.emptying++
	}
	known.uses++
	return known
}

func (x *index) unuse(p *place) {
	for ; p != nil; p = p.in {
		if p.uses--; p.uses > 0 {
			return
		}
		delete(x.places, p.path)
		x.emptying--
	}
}

// stay counts that something in a folder stays, and leave the reverse.
func (x *index) stay(p *place) {
	for ; p != nil; p = p.in {
		if p.stays++; p.stays > 1 {
			return
		}
		x.emptying--
	}
}

func (x *index) leave(p *place) {
	for ; p != nil; p = p.in {
		if p.stays--; p.stays > 0 {
			return
		}
		x.emptying++
	}
}

// placeOf returns the folder of a path, which no index has yet.
func placeOf(p string) *place {
	if parent := path.Dir(p); parent != "." {
		return &place{path: parent}
	}
	return nil
}
