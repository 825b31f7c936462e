// Package lossypair connects the two halves of package lrusync by a connection that loses
// requests and lets others overtake each other, and has a frontend complete its requests all
// the same. It is for tests in which each half is a process.
package lossypair
