package resources

import (
	"os"
	"testing"

	oci "github.com/opencontainers/cgroups"
)

// TestMain lets the library of cgroups write the files of the fake kernel, which are in no cgroupfs.
func TestMain(m *testing.M) {
	oci.TestMode = true
	os.Exit(m.Run())
}
