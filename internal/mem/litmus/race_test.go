//go:build race

package litmus_test

// raceDetector: the compiler makes four accesses of one byte of an access to a word that is not aligned.
const raceDetector = true
