//go:build race

package harness

// raced says that this test program has the race detector. The numalet that it builds has it too.
const raced = true
