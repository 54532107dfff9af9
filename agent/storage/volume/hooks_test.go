package volume

import (
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/mount-utils"

	"github.com/numalet/numalet/internal/podtest"
)

// A recorded hook is found by another run of the agent until it is done.
func TestHooksPending(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	open := func() *Volumes {
		v, err := New(alone(Config{Root: root, Mounter: mount.NewFakeMounter(nil)}))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	pod := podtest.New("u", podtest.Containers("a", "b", "c"))
	for i := range 2 {
		pod.Spec.Containers[i].Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{}}
	}
	v := open()
	for name, attempt := range map[string]uint32{"a": 0, "b": 7, "c": 1} {
		if err := v.Records.HookPends("u", name, attempt); err != nil {
			t.Fatal(err)
		}
	}
	if got := open().Records.HooksPending(pod); len(got) != 2 || got["a"] != 0 || got["b"] != 7 {
		t.Errorf("pending %v", got)
	}
	for range 2 {
		if err := v.Records.HookDone("u", "b"); err != nil {
			t.Error(err)
		}
	}
	if got := open().Records.HooksPending(pod); len(got) != 1 {
		t.Errorf("pending %v", got)
	}
	if err := v.Records.HookPends("u", "..", 0); err == nil {
		t.Error("a container may be named ..")
	}
}
