//go:build race

package admission

const raceDetector = true
