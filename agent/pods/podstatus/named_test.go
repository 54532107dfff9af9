package podstatus

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/pods/pod"
	"github.com/numalet/numalet/agent/pods/source"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology/podspec"
)

// Of several pods of one name, one that has not ended is meant, and rather the API server's than a
// static one; a UID names exactly one.
func TestNamed(t *testing.T) {
	s := New(Config{})
	add := func(uid, from string, ended bool) {
		p := named(uid, "p", podtest.Source(from))
		s.write(pod.StatusPending, p, "")
		if ended {
			s.write(pod.StatusRejected, p, "Full")
		}
	}
	means := func(uid types.UID, want string) {
		t.Helper()
		got, ok := s.Named("default", "p", uid)
		if ok != (want != "") || ok && string(got.UID) != want {
			t.Errorf("pod %v, %v; want %q", got, ok, want)
		}
	}
	means("", "")
	if s.Knows("default", "p") {
		t.Error("a pod is known that does not exist")
	}
	for _, step := range []struct {
		uid, from string
		ended     bool
		want      string
	}{
		{"ended static", source.FileSource, true, "ended static"},
		{"ended", podspec.APISource, true, "ended"},
		{"static", source.FileSource, false, "static"},
		{"last", podspec.APISource, false, "last"},
		{"later static", source.FileSource, false, "last"},
	} {
		add(step.uid, step.from, step.ended)
		means("", step.want)
		means(types.UID(step.uid), step.uid)
	}
	means("none", "")
	if got, _ := s.Named("default", "p", "ended"); got.Status.Reason != "Full" {
		t.Errorf("its status is %+v", got.Status)
	}
	if !s.Knows("default", "p") || s.Knows("other", "p") || s.Knows("default", "q") {
		t.Error("the wrong pods are known")
	}
	if n := len(s.AllNamed("default", "p")); n != 5 {
		t.Errorf("%d pods have the name", n)
	}
}
