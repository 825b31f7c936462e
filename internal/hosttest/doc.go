// Package hosttest makes hosts for tests out of namespaces of the kernel: each has a network of its own, and a
// /dev/shm of its own. A cable leads from each host to a hub, where what they share runs, such as a Redis. The test
// cuts cables and mends them.
//
// It needs no root where users may make user namespaces, and the programs unshare, nsenter, mount and ip. Where that is
// not so, tests skip with the reason. Processes end with the test process, however that ends, and the kernel removes
// networks and mounts with them. Nothing of the machine's own network is touched.
//
// Files but those of /dev/shm are those of the machine, unix sockets among them.
package hosttest
