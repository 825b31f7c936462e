// Package segment creates, maps, adopts and removes shared memory segments: the objects
// /dev/shm/<name> in which vLLM's ring lies.
//
//   - [Create] makes a segment, and beside it a sidecar if [Options] ask for one.
//   - [Attach] maps a segment that exists, of this library or of vLLM.
//   - [Adopt] takes over a segment whose writer is gone; this needs its sidecar. A writer holds a lock on the
//     sidecar, which the kernel releases when the process ends, also by SIGKILL. Ring and sidecar stay as
//     they were.
//   - [Sweep] lists segments whose writer is gone, and removes them.
//   - [Private] is a segment over memory of this process, for tests.
//
// A [Segment] gives access to the bytes ([Segment.Ring], [Segment.Secret]). Package shmring
// allocates chunks in the bytes; packages shmstore and objstore keep objects in them, and a
// table of the objects in the sidecar.
//
// # Lifetimes
//
// A segment outlives the process. [Segment.Unlink] removes its names, and mappings stay. The
// mapping ends with one of five calls:
//
//	Close    for readers
//	Detach   for a writer that another writer will follow: marks the state as clean
//	Yield    as Detach, but at once: another writer may adopt the segment while holds remain
//	Destroy  for the last writer: removes the names too
//	Leave    at once, whoever holds the mapping
//
// Close, Detach and Destroy refuse with [ErrBusy] while someone holds the mapping ([Segment.Hold]), and do
// nothing then. After [Segment.Leave] and [Segment.Yield], which never refuse, the memory stays until the last
// Release. A slice of the mapping must not be touched after the mapping has ended. [Segment.Idle] reports when
// nobody holds the mapping.
//
// # Devices
//
// [Segment.Pin] registers the mapping with the driver of a GPU, so that the ring is the source of its DMA.
// The five calls end the registration before they unmap.
//
// # Faults
//
// The file behind a mapping can be cut short by a peer at any moment; touching what is gone
// is a fault. The stores catch the fault, and [Segment.Explain] turns it into an error that names
// the file.
//
// # Concurrency
//
// Any number of goroutines may use a Segment.
package segment
