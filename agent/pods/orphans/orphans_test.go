package orphans

import (
	"errors"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/cri"
)

// Remains of a pod are found in the runtime, the assignments, directories and cgroups, once for
// each pod, under its best known name; a source that cannot be read hides no other.
func TestOrphans(t *testing.T) {
	var found []string
	s := Search{
		Running: func() []cri.Pod {
			return []cri.Pod{{UID: "r", Namespace: "n", Name: "runs"}, {UID: "known"}}
		},
		Assigned: func() allocation.State {
			return allocation.State{Pods: map[types.UID]allocation.Pod{
				"a": {UID: "a", Namespace: "n", Name: "assigned"}, "r": {UID: "r"},
			}}
		},
		Remains: map[string]func() ([]types.UID, error){
			"directories": func() ([]types.UID, error) { return nil, errors.New("unreadable") },
			"cgroups":     func() ([]types.UID, error) { return []types.UID{"g", "r", "known"}, nil },
		},
		Known: func(uid types.UID) bool { return uid == "known" },
		Found: func(p *v1.Pod) {
			found = append(found, string(p.UID)+":"+p.Namespace+"/"+p.Name)
		},
	}
	err := s.Find(t.Context())
	if err == nil || !strings.Contains(err.Error(), "directories of removed pods: unreadable") {
		t.Errorf("error %v", err)
	}
	slices.Sort(found)
	if want := []string{"a:n/assigned", "g:/", "r:n/runs"}; !slices.Equal(found, want) {
		t.Errorf("found %q, want %q", found, want)
	}
}
