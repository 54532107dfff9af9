package dra_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	healthv1 "k8s.io/kubelet/pkg/apis/dra-health/v1"
	healthv1alpha1 "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/numalet/numalet/deviceplugin/dra"
	"github.com/numalet/numalet/deviceplugin/dra/dratest"
)

// A driver without a usable plugin is gone after 30 s, once, whether its plugin never connected,
// died or left, and not if a plugin was back in between.
func TestGone(t *testing.T) {
	inBubble(t, func(b *bubble) {
		gone := func() int { return len(b.gone) }
		leave := b.register("/never")
		time.Sleep(29 * time.Second)
		expect(b, "gone before 30 s", gone, 0)
		time.Sleep(time.Second)
		expect(b, "gone, never connected", gone, 1)
		time.Sleep(time.Hour)
		expect(b, "gone, an hour later", gone, 1)
		leave()
		time.Sleep(time.Hour)
		expect(b, "gone, left after it was gone", gone, 1)

		d := dratest.New(dratest.Config{})
		b.serve("/a", d)
		leave = b.register("/a")
		time.Sleep(time.Hour)
		expect(b, "gone while connected", gone, 1)
		b.kill("/a", d)
		time.Sleep(25 * time.Second)
		b.serve("/a", d)
		time.Sleep(10 * time.Second)
		expect(b, "usable again", func() bool { return b.Usable(gpu) }, true)
		expect(b, "gone, back after 25 s", gone, 1)
		leave()
		expect(b, "usable after it left", func() bool { return b.Usable(gpu) }, false)
		time.Sleep(31 * time.Second)
		expect(b, "gone, left", gone, 2)
		if err := b.prepare(claimA); !errors.Is(err, dra.ErrNotRegistered) ||
			err.Error() != "DRA driver gpu.example.com is not registered" {
			t.Errorf("a call to a driver that left: %v", err)
		}
		d.Kill()
	})
}

// The newest connected plugin of a driver is called; its death leaves the older one.
func TestNewestConnectedIsCalled(t *testing.T) {
	inBubble(t, func(b *bubble) {
		older, newer := dratest.New(dratest.Config{}), dratest.New(dratest.Config{})
		calls := func(d *dratest.Driver, want int, what string) {
			t.Helper()
			if err := b.prepare(claimA); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if got := len(d.Calls()); got != want {
				t.Errorf("%s: it has %d calls, want %d", what, got, want)
			}
		}
		b.serve("/older", older)
		leave := b.register("/older")
		calls(older, 1, "one plugin")
		b.register("/newer")
		calls(older, 2, "the newer one does not serve yet")
		b.serve("/newer", newer)
		time.Sleep(5 * time.Second)
		calls(newer, 1, "the newer one serves")
		b.kill("/newer", newer)
		calls(older, 3, "the newer one has died")
		b.serve("/newer", newer)
		time.Sleep(5 * time.Second)
		calls(newer, 2, "it is back")
		leave()
		calls(newer, 3, "the older one has left")
		older.Kill()
		newer.Kill()
	})
}

// A plugin that leaves answers the call that it has, and gets no other.
func TestLeavingAnswers(t *testing.T) {
	inBubble(t, func(b *bubble) {
		d := dratest.New(dratest.Config{})
		d.Fault(dratest.Prepare, dratest.Fault{Delay: 10 * time.Second})
		b.serve("/a", d)
		leave := b.register("/a")
		done := make(chan error)
		go func() { done <- b.prepare(claimA) }()
		synctest.Wait()
		leave()
		if err := b.prepare(claimB); !errors.Is(err, dra.ErrNotRegistered) {
			t.Errorf("a call after it left: %v", err)
		}
		if err := <-done; err != nil {
			t.Errorf("the call in flight: %v", err)
		}
		d.Kill()
	})
}

// A call ends after 45 s, and others do not wait for it.
func TestDeadline(t *testing.T) {
	inBubble(t, func(b *bubble) {
		d := dratest.New(dratest.Config{})
		d.Fault(dratest.Prepare, dratest.Fault{Hang: true, Count: 1})
		b.serve("/a", d)
		b.register("/a")
		began, hanging := time.Now(), make(chan error)
		go func() { hanging <- b.prepare(claimA) }()
		synctest.Wait()
		if err := b.prepare(claimB); err != nil || time.Since(began) != 0 {
			t.Errorf("beside a call that hangs: %v after %s", err, time.Since(began))
		}
		err := <-hanging
		if status.Code(err) != codes.DeadlineExceeded || time.Since(began) != 45*time.Second ||
			!strings.HasPrefix(err.Error(), "NodePrepareResources: rpc error") {
			t.Errorf("a call that hangs ended with %v after %s", err, time.Since(began))
		}
		d.Kill()
	})
}

// A connection that is dead without being closed costs one call at most: after a deadline, or when
// another socket is found in the place of its own, the next call goes over a new connection, and the
// driver was usable all the time.
func TestDeadConnection(t *testing.T) {
	for name, silence := range map[string]bool{"found by a call": false, "found by its socket": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				d := dratest.New(dratest.Config{})
				path := b.place()
				b.serve(path, d)
				b.register(path)
				if err := b.prepare(claimA); err != nil {
					t.Fatal(err)
				}
				before := func() (n int) { b.note(func() { n = b.changes }); return n }()
				b.stallAll()
				if silence {
					b.replace(path)
					time.Sleep(5*time.Minute + time.Second)
				} else if err := b.prepare(claimA); status.Code(err) != codes.DeadlineExceeded {
					t.Errorf("the first call: %v", err)
				}
				synctest.Wait()
				if err := b.prepare(claimB); err != nil {
					t.Errorf("the next call: %v", err)
				}
				expect(b, "changes of usable drivers", func() int { return b.changes }, before)
				d.Kill()
			})
		})
	}
}

// A driver has one connection, for calls and health, however long it is there.
func TestOneConnection(t *testing.T) {
	for _, versions := range [][]string{nil, {drav1.DRAPluginService, healthv1.DRAResourceHealthService}} {
		inBubble(t, func(b *bubble) {
			d := dratest.New(dratest.Config{})
			path := b.place()
			b.serve(path, d)
			b.register(path, versions...)
			for range 50 {
				if err := b.prepare(claimA); err != nil {
					t.Fatal(err)
				}
				d.Say(sick("gpu-0"))
				time.Sleep(7 * time.Minute)
			}
			expect(b, "connections", func() int { return len(b.stalls) }, 1)
			d.Kill()
		})
	}
}

// The health stream follows the calls to a new connection at once.
func TestHealthOverAReplacedConnection(t *testing.T) {
	inBubble(t, func(b *bubble) {
		d := dratest.New(dratest.Config{})
		path := b.place()
		b.serve(path, d)
		b.register(path, drav1.DRAPluginService, healthv1.DRAResourceHealthService)
		if err := b.prepare(claimA); err != nil {
			t.Fatal(err)
		}
		b.replace(path)
		time.Sleep(5 * time.Minute)
		d.Say(sick("gpu-1"))
		expect(b, "the device", func() string { return b.heard[len(b.heard)-1][0].Name }, "gpu-1")
		expect(b, "connections", func() int { return len(b.stalls) }, 2)
		d.Kill()
	})
}

// An idle connection stays, or is made again without a call: a driver that nobody calls for a day
// is usable and never gone.
func TestIdle(t *testing.T) {
	inBubble(t, func(b *bubble) {
		d := dratest.New(dratest.Config{})
		b.serve("/a", d)
		b.register("/a")
		before := func() (n int) { b.note(func() { n = b.changes }); return n }()
		time.Sleep(24 * time.Hour)
		expect(b, "usable after a day", func() bool { return b.Usable(gpu) }, true)
		expect(b, "changes in a day", func() int { return b.changes }, before)
		b.kill("/a", d)
		time.Sleep(time.Hour)
		b.serve("/a", d)
		time.Sleep(2 * time.Second)
		if err := b.prepare(claimA); err != nil {
			t.Error(err)
		}
		expect(b, "gone in the hour without", func() int { return len(b.gone) }, 1)
		d.Kill()
	})
}

// Health streams of both services are passed on, begun again 5 s after their end, which is told,
// and not if the driver does not serve them.
func TestHealthStream(t *testing.T) {
	for _, service := range dra.HealthServices() {
		t.Run(service, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				heard := func() int { return len(b.heard) }
				d := dratest.New(dratest.Config{})
				d.Say(sick("gpu-0"))
				b.serve("/a", d)
				leave := b.register("/a", drav1.DRAPluginService, service)
				expect(b, "messages", heard, 1)
				want := dra.DeviceHealth{Pool: "pool", Name: "gpu-0", Health: dra.Unhealthy,
					Updated: time.Now(), Timeout: 7 * time.Second, Message: "too hot"}
				expect(b, "the device", func() dra.DeviceHealth { return b.heard[0][0] }, want)
				d.EndStream(t, nil)
				expect(b, "messages with the end", heard, 2)
				expect(b, "nothing is known", func() bool { return b.heard[1] == nil }, true)
				time.Sleep(4 * time.Second)
				expect(b, "messages before 5 s", heard, 2)
				time.Sleep(time.Second)
				expect(b, "messages after 5 s", heard, 3)
				leave()
				expect(b, "messages after it left", heard, 4)
				b.register("/a", drav1.DRAPluginService, service)
				expect(b, "messages of the next one", heard, 5)
				d.EndStream(t, status.Error(codes.Unimplemented, "no"))
				time.Sleep(time.Hour)
				expect(b, "messages after Unimplemented", heard, 6)
				d.Kill()
			})
		})
	}
	inBubble(t, func(b *bubble) {
		d := dratest.New(dratest.Config{})
		d.Say(sick("gpu-0"))
		b.serve("/a", d)
		b.register("/a")
		expect(b, "messages of a driver that lists no service", func() int { return len(b.heard) }, 0)
		d.Kill()
	})
}

// While a driver is updated the newest plugin speaks for its devices, and the end of the older
// one's stream says nothing.
func TestHealthOverAnUpdate(t *testing.T) {
	inBubble(t, func(b *bubble) {
		older, newer := dratest.New(dratest.Config{}), dratest.New(dratest.Config{})
		older.Say(sick("old"))
		newer.Say(sick("new"))
		b.serve("/older", older)
		b.serve("/newer", newer)
		both := []string{drav1.DRAPluginService, healthv1.DRAResourceHealthService,
			healthv1alpha1.DRAResourceHealthService}
		leave := b.register("/older", both...)
		b.register("/newer", both...)
		older.Say(sick("old"), sick("older"))
		synctest.Wait()
		leave()
		newer.Say()
		expect(b, "messages", func() int { return len(b.heard) }, 3)
		expect(b, "the last names no device", func() int { return len(b.heard[2]) }, 0)
		expect(b, "and is no end", func() bool { return b.heard[2] != nil }, true)
		older.Kill()
		newer.Kill()
	})
}

// A health stream whose connection is dead without being closed is begun again.
func TestHealthOverDeadConnection(t *testing.T) {
	inBubble(t, func(b *bubble) {
		d := dratest.New(dratest.Config{})
		d.Say(sick("gpu-0"))
		b.serve("/a", d)
		b.register("/a", drav1.DRAPluginService, healthv1.DRAResourceHealthService)
		b.stallAll()
		d.Say(sick("gpu-1"))
		expect(b, "messages over the dead connection", func() int { return len(b.heard) }, 1)
		time.Sleep(6 * time.Minute)
		expect(b, "messages, the end included", func() int { return len(b.heard) }, 3)
		expect(b, "the device", func() string { return b.heard[2][0].Name }, "gpu-1")
		d.Kill()
	})
}
