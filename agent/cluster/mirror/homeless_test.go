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

// A mirror pod whose namespace is missing or terminating is retried after pauses that grow to five
// minutes, and created once the namespace exists.
func TestNoNamespace(t *testing.T) {
	going := apierrors.NewForbidden(v1.Resource("pods"), "web-node1", errors.New("it goes"))
	going.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: v1.NamespaceTerminatingCause}}
	for name, refusal := range map[string]error{
		"gone": apierrors.NewNotFound(v1.Resource("namespaces"), "kube-system"), "goes": going,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := heard(t)
				var at []time.Duration
				refused, began := true, time.Now()
				n.api.PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object,
					error) {
					at = append(at, time.Since(began).Truncate(time.Second))
					return refused, nil, refusal
				})
				n.mirrors.Wrote(begins(static("h1")))
				time.Sleep(30 * time.Minute)
				synctest.Wait()
				for i, want := range []time.Duration{0, 10, 30, 70, 150, 310, 610, 910, 1210, 1510} {
					if i >= len(at) || at[i] != want*time.Second {
						t.Fatalf("it is tried at %v", at)
					}
				}
				refused = false
				time.Sleep(longestPause)
				synctest.Wait()
				if got := n.mirror(); got == nil || !podspec.IsMirrorOf(got, static("h1")) {
					t.Errorf("when the namespace is there, there is %+v", got)
				}
			})
		})
	}
}

// An unregistered node is different: it will be registered soon.
func TestNoNodeIsNoMissingNamespace(t *testing.T) {
	if noNamespace(apierrors.NewNotFound(v1.Resource("nodes"), "n")) || noNamespace(errors.New("x")) {
		t.Error("it is taken for a missing namespace")
	}
}
