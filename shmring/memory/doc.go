// Package memory gets the pages of a mapped segment into place and reports what the kernel
// made of it.
//
// [Prepare] does what [Options] ask for: map all pages, huge pages, NUMA nodes, a lock
// against swapping. Its [Report] contains what was really obtained, and a reason for
// whatever was not; that is an error, [ErrMissing], only if it was required. A writer or a
// reader calls it through Segment.Prepare of package segment.
//
// Prepare changes no byte of the memory, and others may use the memory meanwhile. It keeps
// nothing: locked and placed pages stay so until the mapping ends. A page that can't be had
// is an error and never a signal, also if the file is cut short under way.
//
// The files of /proc and /sys are believed when they can be read and ignored when they
// can't: they are missing or empty in one container or another. Linux alone has all this;
// elsewhere the report contains the reason.
package memory
