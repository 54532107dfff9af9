// Package guest_test runs inside the machine that the tests beside this folder boot: it compares
// what the agent believes with what the kernel says.
package guest_test

import (
	"fmt"
	"os"
	"testing"
)

// dir has the programs on the guest's disk.
const dir = "/numa"

func TestMain(m *testing.M) {
	if os.Getenv("NUMALET_RUN") == "" {
		fmt.Println("these tests run in the machine that test/numa boots")
		return
	}
	os.Setenv("NUMALET_PROGRAMS", dir)
	os.Exit(m.Run())
}

// row puts a line into the table that the host prints.
func row(t *testing.T, format string, args ...any) {
	t.Helper()
	t.Attr("row", fmt.Sprintf(format, args...))
}
