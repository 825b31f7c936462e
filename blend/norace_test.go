//go:build !race

package blend_test

const raceDetector = false
