// Package pin defines how memory is registered with the driver of a device, so that the pages of
// a shared memory segment are the source of its DMA: data goes from the ring to a GPU without a
// copy on the host.
//
// A [Registrar] registers memory and a [Registration] ends that. Package pin/cuda has a Registrar
// for CUDA; [Nop] is one that registers nothing and reports so. Segment.Pin of package
// shmring/segment registers a whole segment by a Registrar, and ends the registration before the
// segment is unmapped.
//
// # Who registers
//
// A registration belongs to one process and one mapping. That of a writer does nothing for the
// copies of its readers, and creates a context on the device, which takes hundreds of MiB there. So a
// process that issues copies registers its own mapping, and no other process does.
//
// # Lifetimes
//
// Memory is unregistered before it is unmapped, and after all copies from it are done. A copy
// goes on after the call that started it: a view of an object is released only when the event of its copies has
// occurred. Until then the writer must not reuse the memory. This holds for memory that is not
// registered, too.
//
// # Concurrency
//
// Registrars and registrations may be used by any number of goroutines.
//
// See docs/decisions.md, "A pin belongs to the segment".
package pin
