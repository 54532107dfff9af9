package volume

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestCoreNamesNoDriver: packages csi and scsi are for the files of their types, and for makers.go, which has
// their values.
func TestCoreNamesNoDriver(t *testing.T) {
	types := map[string][]string{
		"csi":  {"csi.go", "csiblock.go", "csilost.go", "makers.go", "migrated.go"},
		"scsi": {"fc.go", "iscsi.go", "networkdisk.go"},
	}
	all, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range all {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for of, files := range types {
			imports := strings.Contains(string(text), "/agent/storage/volume/"+of+`"`)
			if imports && !strings.HasSuffix(name, "_test.go") && !slices.Contains(files, name) {
				t.Errorf("%s imports %s", name, of)
			}
		}
	}
}
