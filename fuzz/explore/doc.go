// Package explore runs every order in which the steps of a few processes can follow one
// another, and finds the shortest order that breaks an invariant. It is for protocols between
// readers and writers of shared memory: who counts what when, which word is stored first, what
// is left if one of them is killed.
//
//	res := explore.Explore(explore.Options{}, func(r *explore.Run) {
//		n := explore.NewVar(r, "n", 0)
//		for _, name := range []string{"A", "B"} {
//			r.Process(name, func(p *explore.Process) {
//				p.Step("load n")
//				x := n.Get()
//				p.Step("store n + 1")
//				n.Set(x + 1)
//			})
//		}
//		r.AtEnd("counted", "no increment may get lost", func() error { ... n.Get() must be 2 ... })
//	})
//	fmt.Println(res) // with the order A loads, B loads, A stores, B stores
//
// A program is executed anew for every order, one process at a time, so it must be
// deterministic: no clock, no random numbers, no maps that are iterated. A process calls
// [Process.Step] before each access to what is shared; the access itself, and everything up to
// the next Step, is then one indivisible step.
//
// # Real code
//
// Code that is not written for this package is explored as it is, if something in it calls
// [Run.Access] at every access to shared memory: a hook in the functions that load and store, or
// failpoints. A sync.Mutex that only one process takes needs nothing. One that two take must be
// modelled by a [Lock] around the call, or taken by [Process.Wait] and TryLock: a process
// that blocks on what the explorer does not see is reported as stuck.
//
// # What is pruned
//
// Orders that lead to the same state are continued once. The state is that of all Vars and
// Locks and the text of [Run.State], where each process stands, and what each process has
// seen so far: the values that it got from Vars or passed to [Process.Saw], and the whole text of
// Run.State at each Step and Wait, but not at an [Process.Access]. What a process does next
// depends on nothing else, so no order is lost. A program that shares Go variables between processes must
// show them in Run.State, unless they depend only on where the processes stand.
//
// # What is not explored
//
// Memory is sequentially consistent here: a step is seen by all processes at once. What a weakly ordered
// processor does in addition is for litmus programs, see internal/mem/litmus.
package explore
