package pod

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/topology/podspec"
)

// InOrder returns pods that come together in the order in which they are decided on: first those
// that run, whose place is taken, then the older ones.
func InOrder(pods []*v1.Pod, runs func(types.UID) bool) []*v1.Pod {
	rank := map[types.UID]int{} // below zero: it runs
	for _, p := range pods {
		if runs(p.UID) {
			rank[p.UID] = -1
		}
	}
	return slices.SortedStableFunc(slices.Values(pods), func(a, b *v1.Pod) int {
		return cmp.Or(rank[a.UID]-rank[b.UID], a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			podspec.Compare(a, b))
	})
}
