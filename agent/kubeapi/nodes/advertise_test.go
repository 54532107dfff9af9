package nodes

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/agent/node"
)

// The label says how many CPUs are isolated, and goes when none are; that somebody else changed it
// is put right.
func TestIsolatedCPUsAreAdvertised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Identity{})
		r.facts.IsolatedCPUs = 4
		defer r.run()()
		expect := func(want string) {
			t.Helper()
			synctest.Wait()
			labels := r.node().Labels
			if got, has := labels[LabelIsolated]; got != want || has != (want != "") {
				t.Errorf("the label is %q, want %q", got, want)
			}
			if labels[v1.LabelHostname] != "n" {
				t.Errorf("the labels are %v", labels)
			}
		}
		expect("4")
		other := r.node()
		other.Labels[LabelIsolated] = "400"
		if _, err := r.CoreV1().Nodes().Update(t.Context(), other, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		expect("4")
		r.change(func(f *node.Facts) { f.IsolatedCPUs = 3 })
		expect("3")
		r.change(func(f *node.Facts) { f.IsolatedCPUs = 0 })
		expect("")
	})
}
