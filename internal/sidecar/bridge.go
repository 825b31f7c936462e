package sidecar

// What a segment offers the stores of this module and nobody else: these functions have types of this
// package, which is internal, so they can't be methods of a public type. Package segment sets them when
// the program starts. A segment is a *segment.Segment.
var (
	// Of returns the sidecar of a segment that this process created or adopted, nil if there is none.
	Of func(segment any) *File
	// Matches reports whether a sidecar is that of a segment.
	Matches func(segment any, f *File) bool
	// Explain is the method Explain of a segment, for faults in other sidecars, too.
	Explain func(segment any, err error, others ...*File) error
)
