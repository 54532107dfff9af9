package nodes

import (
	"maps"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/topology"
)

// The label says how many CPUs are isolated, and goes when none are; that somebody else changed it
// is put right.
func TestIsolatedCPUsAreAdvertised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Identity{})
		r.facts.Placement.IsolatedCPUs = 4
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
		r.change(func(f *nodestatus.Facts) { f.Placement.IsolatedCPUs = 3 })
		expect("3")
		r.change(func(f *nodestatus.Facts) { f.Placement.IsolatedCPUs = 0 })
		expect("")
	})
}

// The labels of the platform are put back within the status period if somebody changes or removes them;
// others' labels stay as they are.
func TestPlatformLabelsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Identity{})
		defer r.run()()
		synctest.Wait()
		for _, spoil := range []func(map[string]string){
			func(l map[string]string) { delete(l, v1.LabelOSStable) },
			func(l map[string]string) { l[v1.LabelArchStable] = "vax" },
		} {
			other := r.node()
			spoil(other.Labels)
			other.Labels["example.com/theirs"] = "x"
			if _, err := r.CoreV1().Nodes().Update(t.Context(), other, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second) // the period
			synctest.Wait()
			got := r.node().Labels
			if got[v1.LabelOSStable] != "linux" || got[v1.LabelArchStable] != runtime.GOARCH ||
				got["example.com/theirs"] != "x" {
				t.Errorf("the labels are %v", got)
			}
		}
	})
}

// Labels say by which policy and scope pods are placed, and a label for each policy that they may
// choose; those of an agent with other settings go.
func TestPoliciesAreAdvertised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Identity{})
		r.facts.Placement.Rules = topology.Rules{
			Policy: topology.BestEffort, Scope: topology.ContainerScope,
			Choices: []topology.Policy{topology.None, topology.SingleNUMANode},
		}
		defer r.run()()
		expect := func(want map[string]string) {
			t.Helper()
			synctest.Wait()
			got := maps.Clone(r.node().Labels)
			maps.DeleteFunc(got, func(key, _ string) bool {
				return !strings.HasPrefix(key, "numalet.io/")
			})
			if !maps.Equal(got, want) {
				t.Errorf("the labels are %v, want %v", got, want)
			}
		}
		expect(map[string]string{
			"numalet.io/topology-policy": "best-effort", "numalet.io/topology-scope": "container",
			"numalet.io/topology-policy.none": "true", "numalet.io/topology-policy.best-effort": "true",
			"numalet.io/topology-policy.single-numa-node": "true",
		})
		r.change(func(f *nodestatus.Facts) {
			f.Placement.Rules = topology.Rules{Policy: topology.SingleNUMANode, Scope: topology.PodScope}
		})
		expect(map[string]string{
			"numalet.io/topology-policy": "single-numa-node", "numalet.io/topology-scope": "pod",
			"numalet.io/topology-policy.single-numa-node": "true",
		})
	})
}
