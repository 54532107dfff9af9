package admission

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// owned is a pod of a controller.
func owned(uid, limits, owner string) *v1.Pod {
	return pod(uid, limits, func(p *v1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{
			{Kind: "ReplicaSet", UID: types.UID(owner), Controller: ptr.To(true)}}
	})
}

// A controller that makes a pod for each that fails makes few failed pods, and a pod that is held
// back is admitted as soon as there is room.
func TestReplacementsAreHeldBack(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		d := open(t, dir, &plugins{}, func(c *Config) { c.Wait = time.Minute })
		defer d.stop()
		d.queue.Submit(pod("full", "cpu=7"), false)
		d.expect("full Admit")
		d.queue.Submit(owned("r0", "cpu=4", "set"), false)
		rejected, pending := 0, 0
		for range 60 {
			time.Sleep(time.Second)
			for name, outcome := range d.outcomes() {
				switch {
				case outcome == "Reject" && name == fmt.Sprint("r", pending):
					rejected++
					pending++
					d.queue.Submit(owned(fmt.Sprint("r", pending), "cpu=4", "set"), false)
				case outcome == "Admit" && strings.HasPrefix(name, "r"):
					t.Fatalf("%s is admitted on a full node", name)
				}
			}
		}
		if rejected < 2 || rejected > 4 {
			t.Errorf("%d pods were rejected within a minute, want the first, after 10 s and "+
				"after 30 s", rejected)
		}
		d.queue.Release("full")
		time.Sleep(time.Second)
		if got := d.outcomes()[fmt.Sprint("r", pending)]; got != "Admit" {
			t.Errorf("with room the pod that was held back is %s", got)
		}
	})
}

// Where pods do not wait none is held back.
func TestNobodyIsHeldBackWithoutWaiting(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		d := open(t, dir, &plugins{}, func(c *Config) { c.Wait = 0 })
		defer d.stop()
		for i := range 3 {
			name := fmt.Sprint("r", i)
			d.queue.Submit(owned(name, "cpu=100", "set"), false)
			time.Sleep(time.Second)
			if got := d.outcomes()[name]; got != "Reject" {
				t.Errorf("%s: %s", name, got)
			}
		}
	})
}
