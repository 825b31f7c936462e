// Package fair divides what is scarce in the daemon between the processes of clients, whatever the number of
// their connections: [Turns] divide the processors, and a [Budget] bytes of memory. [Rooms] are all
// that a daemon has of them.
package fair
