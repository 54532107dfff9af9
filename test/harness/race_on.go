//go:build race

package harness

// raced reports whether this test program, and so the numalet that it builds, has the race
// detector.
const raced = true
