// Package remote has what levels on servers share: the circuit breaker of a server ([Breaker]), the bounds of
// calls and of bytes in memory ([Calls]), and the objects that a level is storing ([Pending]).
package remote
