package admission

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/admission/decide"
)

// From every state events lead to Released, and none of them back to a pod that does not go.
func TestTransitions(t *testing.T) {
	for s := queued; s <= unreleased; s++ {
		if to, ok := s.next(leaving); ok && !to.goes() || !ok && !s.goes() {
			t.Errorf("leaving makes %d %d", s, to)
		}
		if to, ok := s.next(release); !ok {
			if !s.goesNow() && s != unreleased {
				t.Errorf("release changes nothing in %d", s)
			}
		} else if !to.goesNow() || s.underWay() != (to == canceling) {
			t.Errorf("release makes %d %d", s, to)
		}
		for _, p := range []prompt{timeUp, changed} {
			to, ok := s.next(p)
			if ok && (s.underWay() || s.goes() != to.goes()) {
				t.Errorf("prompt %d makes %d %d", p, s, to)
			}
		}
	}
}

// A handler may have a pod wait for a condition of the node: it has nothing meanwhile, is checked
// again at a poke and rejected at its deadline.
func TestAHandlerHasAPodWait(t *testing.T) {
	pressure := func(a decide.Attempt) *decide.Refusal {
		for _, c := range a.Node.Status.Conditions {
			if c.Type == v1.NodeDiskPressure && c.Status == v1.ConditionTrue {
				return &decide.Refusal{Reason: "NodeHadCondition", Message: "disk is short", Wait: true}
			}
		}
		return nil
	}
	for _, wait := range []time.Duration{0, time.Minute} {
		bubble(t, func(t *testing.T, dir string) {
			status := v1.ConditionTrue
			conditions := make(chan v1.ConditionStatus, 1)
			d := open(t, dir, &plugins{}, func(c *Config) {
				c.Wait, c.Handlers = wait, []decide.Handler{pressure}
				c.Node = func() *v1.Node {
					select {
					case status = <-conditions:
					default:
					}
					return &v1.Node{Status: v1.NodeStatus{Conditions: []v1.NodeCondition{
						{Type: v1.NodeDiskPressure, Status: status},
					}}}
				}
			})
			defer d.stop()
			d.queue.Submit(pod("a", "cpu=7"), false)
			if wait == 0 {
				d.expect("a Reject: NodeHadCondition: disk is short")
				return
			}
			d.expect("a Wait: NodeHadCondition: disk is short")
			time.Sleep(30 * time.Second)
			d.queue.Poke()
			d.expect()
			d.queue.Submit(pod("b", "cpu=7"), false)
			d.expect("b Wait: NodeHadCondition: disk is short")
			time.Sleep(31 * time.Second)
			d.expect("a Reject: NodeHadCondition: disk is short")
			conditions <- v1.ConditionFalse
			d.queue.Poke()
			d.expect("b Admit")
			d.queue.Submit(pod("c", "cpu=1"), false)
			synctest.Wait()
			if said := d.outcomes(); said["c"] != "Reject" {
				t.Errorf("said %v, want that c finds no CPUs", said)
			}
		})
	}
}
