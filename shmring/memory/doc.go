// Package memory prepares the pages of a mapped segment and reports their state.
//
// [Prepare] does what [Options] request: it maps all pages in advance, requests huge pages,
// places pages on NUMA nodes, and locks them against swapping. Its [Report] contains what was
// obtained, and a reason for everything that was not. The lack of something is an error,
// [ErrMissing], only if Options.Require is set. Writers and readers call Prepare through
// Segment.Prepare of package segment.
//
// Prepare changes no byte of the memory, and other goroutines and processes may use the memory
// meanwhile. Locked and placed pages stay so until the mapping ends; nothing has to be
// released. A page that the kernel can't provide is an error and never a signal, even if a
// peer cuts the file short meanwhile.
//
// Files of /proc and /sys that can't be read are ignored, since they are missing or empty in
// some containers. All this exists on Linux only; elsewhere the report contains that as the
// reason.
package memory
