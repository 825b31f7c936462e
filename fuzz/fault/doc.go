// Package fault makes things go wrong, for tests of programs that share memory or files:
//
//   - [Start] runs a child process, which the test can stop, let go on, and kill at any instant;
//     [KillAt] makes the child end itself by SIGKILL at a named place, see [Point];
//   - [Kind.Apply] changes or cuts off bytes of a file, by a seed, and undoes that;
//   - [OwnMounts] and [Mount] give a test a small tmpfs, without root;
//   - [LimitDescriptors] leaves a process few file descriptors.
//
// A writer of your own, killed at a place and taken over by the next one:
//
//	cmd := exec.Command(os.Args[0], "-test.run=^TestWriter$") // which calls fault.Point("half written")
//	fault.KillAt(cmd, "half written", 3)
//	p := fault.Start(t, cmd)
//	require.NoError(t, p.WaitKilled())
//
// Programs that are built with -tags failpoints, or with the race detector, can be killed at the
// places of this module, too: [Points].
//
// # Clocks
//
// For jumps of the clock use testing/synctest: in its bubble it is the year 2000, so that what was
// made outside of it sees the clock jump back, and sleeping there is a jump forward.
package fault
