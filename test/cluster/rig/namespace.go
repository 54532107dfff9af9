package rig

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/controlplane"
	"github.com/numalet/numalet/test/harness"
)

// makeNamespace creates the test's namespace and waits until pods can be created there. The test's
// end deletes it; its nodes have gone by then, so no agent would end its pods.
func (c *Cluster) makeNamespace() {
	c.t.Helper()
	ctx, core := c.t.Context(), c.Client.CoreV1()
	made, err := core.Namespaces().Create(ctx, &v1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
	}, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	c.Namespace = made.Name
	c.t.Cleanup(func() {
		ctx := context.Background()
		c.delete("namespace", core.Namespaces().Delete, c.Namespace)
		err := core.Pods(c.Namespace).DeleteCollection(ctx, atOnce(), metav1.ListOptions{})
		if err != nil {
			c.t.Errorf("delete the pods that are left: %v", err)
		}
	})
	harness.Eventually(c.t, "pods can be made in the namespace", func() error {
		return controlplane.Usable(ctx, c.Client, c.Namespace)
	})
}

// delete deletes an object, if it exists.
func (c Cluster) delete(what string,
	do func(context.Context, string, metav1.DeleteOptions) error, name string) {
	err := do(context.Background(), name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		c.t.Error(fmt.Errorf("delete %s: %w", what, err))
	}
}

func atOnce() metav1.DeleteOptions { return metav1.DeleteOptions{GracePeriodSeconds: new(int64)} }
