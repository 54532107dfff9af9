package cgroups

import (
	"os"
	"testing"
)

// TestMissingPod: a pod's cgroup is missing if a hierarchy that limits the pod lacks it.
func TestMissingPod(t *testing.T) {
	rewritable(t)
	h := newHost(t).legacy("cpu", "cpuacct", "cpuset", "memory", "pids", "freezer")
	for file, text := range map[string]string{"cpuset.cpus": "0-3\n", "cpuset.mems": "0\n"} {
		if err := os.WriteFile(h.mount+"/cpuset/"+file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tree := h.tree(Config{})
	pod := testPod("b1", "cpu=1..")
	if Exists(tree) || MissingPod(tree, pod) != h.mount+"/cpu/kubepods/burstable/podb1" {
		t.Errorf("before it is made: %t, %q", Exists(tree), MissingPod(tree, pod))
	}
	if err := madePod(t.Context(), tree, pod, PodOptions{}); err != nil {
		t.Fatal(err)
	}
	if !Exists(tree) || MissingPod(tree, pod) != "" {
		t.Errorf("once it is made: %t, %q", Exists(tree), MissingPod(tree, pod))
	}
	other := testPod("b1", "")
	if missing := MissingPod(tree, other); missing != "" {
		t.Errorf("in another class it is missing: %s", missing)
	}
	for controller, want := range map[string]bool{"freezer": false, "memory": true} {
		dir := h.mount + "/" + controller + "/kubepods/burstable/podb1"
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if got := MissingPod(tree, pod) == dir; got != want {
			t.Errorf("without %s: missing: %t", dir, got)
		}
	}
}
