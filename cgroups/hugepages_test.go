package cgroups

import (
	"os"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// expectReserved: where the kernel limits what a pod may reserve of huge pages, that is what it may use.
func expectReserved(t *testing.T, tree *Tree, pod *v1.Pod, dir, name, want string) {
	t.Helper()
	path := dir + "/" + name
	if exists(path) && tree.unified { // the library, which writes v1, makes files in tests
		t.Fatalf("%s was made, which the kernel does not have", path)
	}
	if err := os.WriteFile(path, []byte("9223372036854771712"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := madePod(t.Context(), tree, pod, PodOptions{Pids: 64}); err != nil {
		t.Fatal(err)
	}
	expect(t, dir, name, want)
}
