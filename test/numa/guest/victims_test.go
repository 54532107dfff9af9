package guest_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// victims are pods that are evicted when a critical one takes so much memory that there is not enough without
// all of them, in this order: by priority, then by use. The number is of MiB.
var victims = []struct {
	name, class, uses string
}{{"more", "", "120"}, {"less", "", "60"}, {"important", "important", "180"}}

// victims returns the pods in the order of their ends, with what is said of them.
func (r rounds) victims(t *testing.T) (said string) {
	t.Helper()
	_, err := r.SchedulingV1().PriorityClasses().Create(t.Context(), &schedulingv1.PriorityClass{
		ObjectMeta: metav1.ObjectMeta{Name: "important"}, Value: 1000}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	r.clear(t)
	r.calm(t)
	for _, v := range victims {
		r.start(t, v.name, "", []string{"--print", "--allocate=" + v.uses}, "work", v.class)
		r.runs(t, v.name)
	}
	watched := watch(t)
	// All victims together have less than what is between this and the threshold.
	const leaves = 200
	takes := fmt.Sprintf("--allocate=%d", meminfo(t, "MemAvailable:")>>20-leaves)
	r.start(t, "critical", "", []string{"--print", takes}, "work", "system-node-critical")
	var order []string
	r.node.Eventually("all others are evicted", func() error {
		pods, err := r.CoreV1().Pods(r.namespace).List(context.Background(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, p := range pods.Items {
			if p.Status.Phase == v1.PodFailed && !slices.Contains(order, p.Name) {
				order = append(order, p.Name)
				said += fmt.Sprintln(p.Name, p.Status.Reason, withoutAmounts(p.Status.Message))
			}
		}
		if len(order) < len(victims) {
			return fmt.Errorf("so far %v", order)
		}
		return nil
	})
	row(t, "evicted in this order: %v; %s", order, watched())
	if got := strings.Join(order, " "); got != "more less important" {
		t.Errorf("the order is %s", got)
	}
	r.clear(t)
	return said
}

// runs waits until a pod runs.
func (r rounds) runs(t *testing.T, name string) {
	t.Helper()
	r.node.Eventually(name+" runs", func() error {
		p, err := r.CoreV1().Pods(r.namespace).Get(context.Background(), name, metav1.GetOptions{})
		if err == nil && p.Status.Phase != v1.PodRunning {
			err = fmt.Errorf("it is %s %s", p.Status.Phase, p.Status.Reason)
		}
		return err
	})
}
