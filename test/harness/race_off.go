//go:build !race

package harness

const raced = false
