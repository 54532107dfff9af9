// Package goldentest compares what a test got with a file. go test -rewrite writes the file anew.
package goldentest

import (
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// Compare fails the test if the text differs from the file at path.
func Compare(t testing.TB, path, got string) {
	t.Helper()
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("it differs from %s (go test -rewrite writes it; -want +got):\n%s", path, diff)
	}
}
