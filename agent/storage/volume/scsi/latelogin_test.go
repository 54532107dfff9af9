package scsi

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/numalet/numalet/internal/await"
)

// A login that outlives the agent which began it makes no session that stays: the disk is in use until
// no session can come of it.
func TestLoginOutlivesAgent(t *testing.T) {
	never := commandWait + time.Second
	for _, c := range []struct {
		name string
		// begin makes what the earlier run has left.
		begin  func(t *testing.T, n *fakeNode)
		comes  time.Duration // when the login's session comes, after the agent's start
		within time.Duration // when nothing is left, at the latest
		early  bool          // nothing is left at once
	}{
		{name: "it succeeds late", begin: recorded, comes: 119 * time.Second, within: commandWait},
		{name: "it succeeds early", begin: recorded, comes: time.Second, within: commandWait},
		{name: "it fails", begin: recorded, comes: never, within: commandWait},
		{name: "the agent wrote the same record again", begin: func(t *testing.T, n *fakeNode) {
			recorded(t, n)
			long := time.Now().Add(-50 * 365 * 24 * time.Hour)
			n.aged(long)
			n.booted = long.Add(time.Hour)
			recorded(t, n)
		}, comes: 119 * time.Second, within: commandWait},
		{name: "the machine booted since", begin: func(t *testing.T, n *fakeNode) {
			recorded(t, n)
			n.booted = time.Now().Add(100 * 365 * 24 * time.Hour)
		}, comes: never, early: true},
		{name: "there is a session", begin: func(t *testing.T, n *fakeNode) {
			recorded(t, n)
			n.session("10.0.0.1:3260", iqn, "default")
		}, comes: never, early: true},
		{name: "the disk is mounted", begin: func(t *testing.T, n *fakeNode) {
			recorded(t, n)
			n.mount(n.path("dev/sda0"), n.path("kubelet/plugins/kubernetes.io/"+dir0))
		}, comes: never, early: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t, 0)
			synctest.Test(t, func(t *testing.T) {
				c.begin(t, n)
				began := time.Now()
				d := n.disks(func(cfg *Config) { cfg.Pauses = await.Pauses{} }) // the usual ones
				defer n.start(d)()
				synctest.Wait()
				if left := n.left(); c.early == (len(left) > 0) || c.early == (len(d.InUse()) > 0) {
					t.Errorf("at once: left %q, in use %q", left, d.InUse())
				}
				if c.comes < never {
					time.Sleep(c.comes)
					n.session("10.0.0.1:3260", iqn, "default")
				}
				time.Sleep(time.Until(began.Add(c.within)))
				synctest.Wait()
				if left := n.left(); len(left) > 0 || n.sessions() > 0 || len(d.InUse()) > 0 {
					t.Errorf("left %q, %d sessions, in use %q", left, n.sessions(), d.InUse())
				}
			})
		})
	}
}

// A pod that wants the disk meanwhile has it. The session of the earlier login, which comes beside the pod's
// own, is ended too.
func TestLoginBesideLogin(t *testing.T) {
	n := newNode(t, 0)
	n.unrecorded = true // the first logout deletes it
	recorded(t, n)
	synctest.Test(t, func(t *testing.T) {
		d := n.disks()
		defer n.start(d)()
		synctest.Wait()
		if err := n.use(d, request(t, "a", "v", source(0))); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if n.sessions() != 1 {
			t.Errorf("%d sessions", n.sessions())
		}
		n.leave(d, "a")
		time.Sleep(time.Second)
		synctest.Wait()
		if n.sessions() > 0 || len(d.InUse()) == 0 {
			t.Errorf("%d sessions, in use %q", n.sessions(), d.InUse())
		}
		for range 2 {
			n.session("10.0.0.1:3260", iqn, "default")
		}
		time.Sleep(commandWait)
		synctest.Wait()
		if left := n.left(); len(left) > 0 || n.sessions() > 0 || len(d.InUse()) > 0 {
			t.Errorf("left %q, %d sessions, in use %q", left, n.sessions(), d.InUse())
		}
	})
}
