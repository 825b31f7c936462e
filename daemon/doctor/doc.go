// Package doctor looks at a machine for an operator: what keeps a daemon of package daemon from its start,
// what would make it or its engines suffer, and what was left behind by processes that were killed. It is
// behind the command ringcache doctor.
//
// [Run] returns a [Finding] for everything that it has looked at: what daemon.Config.Check finds, and the
// mount of shared memory and the memory limit against the plan, locked memory, huge pages, RemoveIPC of
// systemd, the kernel's treatment of split locks, the releases of vLLM and LMCache that are installed,
// segments and a socket without an owner. If a daemon runs, it is asked whether it answers, in place of the
// checks of a start.
//
// It changes nothing, and leaves nothing behind. Run may be called by any number of goroutines.
package doctor
