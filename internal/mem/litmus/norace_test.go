//go:build !race

package litmus_test

const raceDetector = false
