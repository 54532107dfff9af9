package pod

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/internal/podtest"
)

// Of pods that come together those that run come first, then the older ones; pods of the same age
// are in order of namespace, name and UID.
func TestPodsThatComeTogetherAreInOrder(t *testing.T) {
	at := func(hour int) metav1.Time {
		return metav1.NewTime(time.Date(2030, 1, 1, hour, 0, 0, 0, time.UTC))
	}
	pod := func(uid, namespace, name string, created metav1.Time) *v1.Pod {
		return podtest.New(namespace+"/"+name, podtest.UID(uid),
			func(p *v1.Pod) { p.CreationTimestamp = created })
	}
	runs := func(uid types.UID) bool { return uid == "runs" || uid == "runs, older" }
	given := []*v1.Pod{
		pod("runs", "z", "z", at(9)), pod("5", "a", "b", at(3)), pod("4", "a", "a", at(3)),
		pod("6", "b", "a", at(3)), pod("3", "z", "z", at(2)), pod("2", "a", "a", metav1.Time{}),
		pod("1", "a", "a", metav1.Time{}), pod("runs, older", "z", "z", at(8)),
	}
	var got []types.UID
	for _, p := range InOrder(given, runs) {
		got = append(got, p.UID)
	}
	want := []types.UID{"runs, older", "runs", "1", "2", "3", "4", "5", "6"}
	if !slices.Equal(got, want) {
		t.Errorf("order %q, want %q", got, want)
	}
	if given[0].UID != "runs" {
		t.Error("the update itself was changed")
	}
}
