package mirror

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/numalet/numalet/topology/podspec"
)

// authorize lets the node get only its own pods, as the Node authorizer does.
func (n node) authorize() {
	n.api.PrependReactor("get", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		name := a.(clienttesting.GetAction).GetName()
		pod, err := n.api.Tracker().Get(a.GetResource(), a.GetNamespace(), name)
		if err == nil && pod.(*v1.Pod).Spec.NodeName == "node1" {
			return false, nil, nil
		}
		return true, nil, apierrors.NewForbidden(v1.Resource("pods"), name, errors.New("no relation"))
	})
}

// A request with a lost answer is repeated, whether it took effect or not: a node may not ask for a
// pod that does not exist.
func TestLostAnswers(t *testing.T) {
	for _, verb := range []string{"create", "delete"} {
		for name, effect := range map[string]bool{"in vain": false, "with effect": true} {
			t.Run(verb+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					n := heard(t)
					n.authorize()
					if verb == "delete" {
						n.mirrors.Wrote(begins(static("h1")))
						n.watch()
					}
					n.loseOne(verb, effect)
					n.mirrors.Wrote(begins(static("h1")))
					if verb == "delete" {
						n.mirrors.Wrote(ends(static("h1")))
					}
					time.Sleep(time.Minute)
					pods, err := n.api.Tracker().List(v1.SchemeGroupVersion.WithResource("pods"),
						v1.SchemeGroupVersion.WithKind("Pod"), "kube-system")
					if err != nil {
						t.Fatal(err)
					}
					want := map[string]int{"create": 1, "delete": 0}[verb]
					if got := len(pods.(*v1.PodList).Items); got != want {
						t.Errorf("there are %d mirror pods, want %d", got, want)
					}
				})
			})
		}
	}
}

// loseOne loses the answer to the next request of a verb.
func (n node) loseOne(verb string, effect bool) {
	lost := false
	n.api.PrependReactor(verb, "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if lost {
			return false, nil, nil
		}
		lost = true
		var err error
		switch a := a.(type) {
		case clienttesting.CreateAction:
			if effect {
				err = n.api.Tracker().Create(a.GetResource(), a.GetObject(), a.GetNamespace())
			}
		case clienttesting.DeleteAction:
			if effect {
				err = n.api.Tracker().Delete(a.GetResource(), a.GetNamespace(), a.GetName())
			}
		}
		return true, nil, errors.Join(errors.New("connection reset"), err)
	})
}

// If a pod of another node has the name of a static pod, it is never delivered, and the node may
// not get it: requests become less and less frequent.
func TestTheNameIsTakenElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := heard(t)
		n.authorize()
		other := static("other")
		other.Spec.NodeName = "node2"
		pods := n.api.CoreV1().Pods("kube-system")
		if _, err := pods.Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		n.mirrors.Wrote(begins(static("h1")))
		time.Sleep(time.Hour)
		if gets := n.verbs("get"); gets > 200 { // including nodes; one pod each minute at most
			t.Errorf("%d requests in an hour", gets)
		}
		if err := n.api.Tracker().Delete(v1.SchemeGroupVersion.WithResource("pods"), "kube-system",
			"web-node1"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Minute)
		if got := n.mirror(); got == nil || !podspec.IsMirrorOf(got, static("h1")) {
			t.Errorf("when the other pod is gone there is %+v", got)
		}
	})
}
