package nodes

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/numalet/numalet/internal/podtest"
)

const dongle v1.ResourceName = "example.com/dongle"

// existing is an object that an earlier installation, or somebody with a patch, has given a resource.
func existing() *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: v1.NodeStatus{
		Capacity:    podtest.Amounts("cpu=4 example.com/dongle=2"),
		Allocatable: podtest.Amounts("cpu=3 example.com/dongle=2"),
	}}
}

// What others put into the node's status stays over a restart of the agent, and what is added later is
// allocatable. On a machine where no agent or kubelet has been, it is another installation's and
// becomes 0, as with the kubelet.
func TestOthersResourcesStay(t *testing.T) {
	for fresh, want := range map[bool]string{false: "2", true: "0"} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, Identity{}, existing())
			r.nodes.cfg.Fresh = fresh
			defer r.run()()
			expect := func(want string) {
				t.Helper()
				time.Sleep(10 * time.Second) // the period
				synctest.Wait()
				s := r.node().Status
				capacity, allocatable := s.Capacity[dongle], s.Allocatable[dongle]
				if capacity.String() != want || allocatable.String() != want {
					t.Errorf("fresh %t: %s, allocatable %s, want %s", fresh, &capacity, &allocatable, want)
				}
			}
			expect(want)
			other := r.node()
			other.Status.Capacity[dongle] = resource.MustParse("3")
			if _, err := r.CoreV1().Nodes().UpdateStatus(t.Context(), other,
				metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			expect("3")
		})
	}
}

// A node that may not create its object takes over one that is there, unless the gate forbids that.
func TestRegistrationThatIsForbidden(t *testing.T) {
	for only, want := range map[bool]bool{false: true, true: false} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, Identity{}, existing())
			r.nodes.cfg.OnExistsOnly = only
			no := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "n", nil)
			r.refuse("create", no, no)
			ctx := r.run()
			time.Sleep(50 * time.Millisecond) // before the third attempt
			synctest.Wait()
			if registered := r.nodes.Node() != nil; registered != want {
				t.Errorf("gate %t: registered: %t", only, registered)
			}
			ctx()
		})
	}
}
