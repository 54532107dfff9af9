package mirror

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/agent/cluster/kubeapi"
	"github.com/numalet/numalet/agent/pods/podstatus"
	"github.com/numalet/numalet/agent/pods/source"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology/podspec"
)

// node is a node whose static pods are mirrored in a fake API server.
type node struct {
	*testing.T
	api     *fake.Clientset
	mirrors *Mirrors
}

func newNode(t *testing.T) node {
	n := node{t, fake.NewClientset(), nil}
	made := 0
	n.api.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if pod := a.(clienttesting.CreateAction).GetObject().(*v1.Pod); pod.UID == "" {
			made++
			pod.UID = types.UID("api-" + strconv.Itoa(made))
		}
		return false, nil, nil
	})
	var err error
	if n.mirrors, err = New(Config{
		Client: n.api, Node: "node1", Registry: metrics.NewKubeRegistry(),
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = n.mirrors.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return n
}

// register creates the Node.
func (n node) register() {
	n.Helper()
	_, err := n.api.CoreV1().Nodes().Create(n.Context(),
		&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1", UID: "node-uid"}},
		metav1.CreateOptions{})
	if err != nil {
		n.Fatal(err)
	}
}

// watch delivers the API server's pods, and waits for the consequences.
func (n node) watch() {
	n.Helper()
	synctest.Wait()
	list, err := n.api.CoreV1().Pods(metav1.NamespaceAll).List(n.Context(), metav1.ListOptions{})
	if err != nil {
		n.Fatal(err)
	}
	var all []*v1.Pod
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	n.mirrors.Saw(all)
	synctest.Wait()
}

// heard returns a node that is registered and has heard of all static pods.
func heard(t *testing.T) node {
	n := newNode(t)
	n.register()
	n.mirrors.Heard()
	return n
}

// mirror returns the API server's pod with the static pod's name; nil: there is none.
func (n node) mirror() *v1.Pod {
	n.Helper()
	synctest.Wait()
	pod, err := n.api.CoreV1().Pods("kube-system").Get(n.Context(), "web-node1",
		metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		n.Fatal(err)
	}
	return pod
}

func static(uid string) *v1.Pod {
	return podtest.New("kube-system/web-node1", podtest.UID(uid),
		podtest.Containers("main"), podtest.Source(source.FileSource),
		podtest.Annotations(podspec.AnnotationHash, uid, source.AnnotationSeen, "now", source.AnnotationManifest, uid),
		func(p *v1.Pod) { p.Spec.NodeName, p.Labels = "node1", map[string]string{"app": "web"} })
}

func begins(p *v1.Pod) podstatus.Change {
	return podstatus.Change{Pod: p, After: v1.PodStatus{Phase: v1.PodPending}}
}

func ends(p *v1.Pod) podstatus.Change {
	return podstatus.Change{Pod: p, Before: v1.PodStatus{Phase: v1.PodRunning}}
}

// A static pod has a mirror pod that is owned by the Node and carries its hash. The mirror is
// created again after it was deleted, gracefully or by force, and deleted with the static pod.
func TestMirrorPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.mirrors.Wrote(begins(static("h1")))
		n.watch()
		if got := n.mirror(); got != nil {
			t.Fatalf("without a Node there is %+v", got)
		}
		n.register()
		time.Sleep(11 * time.Second) // the longest pause between tries
		got := n.mirror()
		if got == nil {
			t.Fatal("there is no mirror pod")
		}
		owner := got.OwnerReferences
		if len(owner) != 1 || owner[0].Kind != "Node" || owner[0].APIVersion != "v1" ||
			owner[0].Name != "node1" || owner[0].UID != "node-uid" || !*owner[0].Controller ||
			owner[0].BlockOwnerDeletion != nil {
			t.Errorf("it belongs to %+v", owner)
		}
		want := map[string]string{
			podspec.AnnotationMirror: "h1", podspec.AnnotationHash: "h1",
			podspec.AnnotationSource: source.FileSource, source.AnnotationSeen: "now",
		}
		for key, value := range want {
			if got.Annotations[key] != value {
				t.Errorf("annotation %s is %q, want %q", key, got.Annotations[key], value)
			}
		}
		if len(got.Annotations) != len(want) || got.Labels["app"] != "web" ||
			got.Spec.NodeName != "node1" || len(got.Spec.Containers) != 1 || got.UID == "h1" {
			t.Errorf("the mirror pod is %+v", got)
		}

		pods := n.api.CoreV1().Pods("kube-system")
		n.watch()
		_ = pods.Delete(t.Context(), "web-node1", metav1.DeleteOptions{})
		n.watch()
		if got = n.mirror(); got == nil {
			t.Fatal("it is not made anew")
		}
		n.watch()
		got.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		if _, err := pods.Update(t.Context(), got, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		n.watch()
		if got = n.mirror(); got == nil || got.DeletionTimestamp != nil {
			t.Errorf("of one that is being deleted there is %+v", got)
		}
		n.watch()
		n.mirrors.Wrote(ends(static("h1")))
		n.watch()
		if got = n.mirror(); got == nil {
			t.Error("it is gone before every source was heard")
		}
		n.mirrors.Heard()
		n.watch()
		if got = n.mirror(); got != nil {
			t.Errorf("without a static pod there is %+v", got)
		}
	})
}

// A mirror pod whose deletion was interrupted is deleted, and created again if there is a static
// pod; one that a finalizer keeps is left alone.
func TestHalfDeleted(t *testing.T) {
	for name, test := range map[string]struct {
		finalizers []string
		anew       bool
	}{
		"interrupted": {nil, true},
		"held back":   {[]string{"example.com/held"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := heard(t)
				n.mirrors.Wrote(begins(static("h1")))
				n.watch()
				marked := n.mirror().DeepCopy()
				marked.DeletionTimestamp = &metav1.Time{Time: time.Now()}
				marked.DeletionGracePeriodSeconds = new(int64)
				marked.Finalizers = test.finalizers
				_, err := n.api.CoreV1().Pods(marked.Namespace).Update(t.Context(), marked,
					metav1.UpdateOptions{})
				if err != nil {
					t.Fatal(err)
				}
				n.watch()
				if got := n.mirror(); got == nil || (got.DeletionTimestamp == nil) != test.anew {
					t.Errorf("there is %+v; want a new one: %v", got, test.anew)
				}
			})
		})
	}
}

// While a static pod ends that another one of the name replaces, the mirror is the first one's,
// then the second one's. An irrelevant change of the static pod sends no request.
func TestOneFollowsAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := heard(t)
		n.mirrors.Wrote(begins(static("h1")))
		n.watch()
		n.mirrors.Wrote(begins(static("h2")))
		n.watch()
		if got := n.mirror(); got == nil || got.Annotations[podspec.AnnotationMirror] != "h1" {
			t.Errorf("while the first one ends the mirror pod is %+v", got)
		}
		n.mirrors.Wrote(ends(static("h1")))
		n.watch()
		if got := n.mirror(); got == nil || got.Annotations[podspec.AnnotationMirror] != "h2" {
			t.Errorf("when the first one is gone the mirror pod is %+v", got)
		}
		n.watch()
		requests := len(n.api.Actions())
		n.mirrors.Wrote(podstatus.Change{
			Pod: static("h2"), Before: v1.PodStatus{Phase: v1.PodPending},
			After: v1.PodStatus{Phase: v1.PodRunning},
		})
		time.Sleep(time.Minute)
		n.watch()
		if more := len(n.api.Actions()) - requests - 1; more > 0 { // except for the list
			t.Errorf("%d requests although nothing is to be done", more)
		}
	})
}

// A pod of the API server with the name of a static pod is no mirror pod: it is left alone, and the
// mirror pod is created when it is gone.
func TestTheNameIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := heard(t)
		other := static("other")
		other.Annotations = nil
		pods := n.api.CoreV1().Pods("kube-system")
		if _, err := pods.Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		n.mirrors.Wrote(begins(static("h1"))) // before the other pod was delivered
		n.watch()
		if got := n.mirror(); got == nil || got.UID != "other" {
			t.Fatalf("the other pod became %+v", got)
		}
		if creates := n.verbs("create"); creates > 3 { // the Node, the other pod, one try
			t.Errorf("%d pods were to be created", creates-2)
		}
		_ = pods.Delete(t.Context(), "web-node1", metav1.DeleteOptions{})
		n.watch()
		time.Sleep(kubeapi.Patience + time.Second)
		if got := n.mirror(); got == nil || !podspec.IsMirrorOf(got, static("h1")) {
			t.Errorf("when the other pod is gone there is %+v", got)
		}
	})
}

func (n node) verbs(verb string) (count int) {
	for _, a := range n.api.Actions() {
		if a.GetVerb() == verb {
			count++
		}
	}
	return count
}
