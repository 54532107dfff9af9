package admission

import (
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/cpumanager"
)

// With strict-cpu-reservation, exclusive CPUs could be all there are for pods. Those that share
// CPUs must have some: whoever comes second is rejected, or waits for one that terminates.
func TestExclusiveCPUsLeaveSome(t *testing.T) {
	strict := func(cfg *Config) {
		hardware := cfg.Hardware()
		var err error
		hardware.CPUs, err = cpumanager.NewStatic(hardware.Machine, cpuset.New(0),
			cpumanager.Options{StrictReservation: true})
		if err != nil {
			t.Fatal(err)
		}
		cfg.Hardware = func() machine.Hardware { return hardware }
	}
	refused := func(d *desk, uid string) {
		t.Helper()
		want := uid + " Reject: UnexpectedAdmissionError: Allocate failed due to no cpu is left"
		if said := d.hear(); len(said) != 1 || !strings.HasPrefix(said[0], want) {
			t.Fatalf("said %q, want %q", said, want)
		}
	}
	bubble(t, func(t *testing.T, dir string) {
		d := open(t, dir, &plugins{}, strict)
		defer d.stop()
		d.queue.Submit(pod("all", "cpu=7"), false)
		d.expect("all Admit")
		d.queue.Submit(pod("shares", ""), false)
		synctest.Wait()
		refused(d, "shares")
		d.queue.Release("all")
		d.queue.Release("shares")
		synctest.Wait()

		d.queue.Submit(pod("shares", ""), false)
		d.expect("shares Admit")
		d.queue.Submit(pod("all", "cpu=7"), false)
		synctest.Wait()
		refused(d, "all")
		d.queue.Leaving("shares", false)
		d.queue.Submit(pod("next", "cpu=7"), false)
		synctest.Wait()
		said := d.hear()
		if len(said) != 1 || !strings.HasPrefix(said[0], "next Wait: "+decide.ReasonWaitResources) {
			t.Fatalf("said %q, want next to wait", said)
		}
		d.queue.Release("shares")
		d.expect("next Admit")
	})
}
