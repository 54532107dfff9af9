package machine_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/topology"
)

func named(t *testing.T, name string) *topology.Machine {
	t.Helper()
	m, err := topology.NewMachine(topology.Spec{
		Name: name, Nodes: []topology.Node{{ID: 0}}, CPUs: []topology.CPU{{ID: 0}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// source is what a Current reads from.
type source struct {
	mu      sync.Mutex // guards the fields below
	machine *topology.Machine
	err     error
	sign    string
}

func (s *source) set(sign string, m *topology.Machine, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sign, s.machine, s.err = sign, m, err
}

func (s *source) read(*topology.Machine) (*topology.Machine, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.machine, s.err
}

func (s *source) readSign() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sign
}

// Another machine becomes the hardware if the configuration fits it.
func TestTheHardwareFollowsTheMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second, odd := named(t, "first"), named(t, "second"), named(t, "odd")
		from := &source{machine: first}
		reported := 0
		current := machine.New(machine.Config{
			Read: from.read,
			Derive: func(m *topology.Machine) (machine.Hardware, error) {
				if m == odd {
					return machine.Hardware{}, errors.New("odd")
				}
				return machine.Hardware{Machine: m}, nil
			},
			Period: time.Minute,
		}, machine.Hardware{Machine: first})
		changed := mailbox.Subscribe(current.Changes())
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- current.Run(ctx) }()

		expect := func(m *topology.Machine, changes int) {
			t.Helper()
			synctest.Wait()
			select {
			case <-changed:
				reported++
			default:
			}
			if got := current.Get().Machine; got != m || reported != changes {
				t.Errorf("the machine is %s, changes %d; want %s and %d",
					got.Name(), reported, m.Name(), changes)
			}
		}
		time.Sleep(time.Minute)
		expect(first, 0)
		from.set("", second, nil)
		expect(first, 0) // nobody has looked yet
		var asking sync.WaitGroup
		for range 5 {
			asking.Go(func() {
				current.Reread(ctx)
				if current.Get().Machine != second {
					t.Error("Reread returned before what it found counts")
				}
			})
		}
		asking.Wait()
		expect(second, 1)
		from.set("", odd, nil)
		time.Sleep(time.Minute)
		expect(second, 1)
		from.set("", nil, errors.New("no sysfs"))
		time.Sleep(time.Minute)
		expect(second, 1)
		from.set("", first, nil)
		time.Sleep(time.Minute)
		expect(first, 2)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A changed sign triggers a look; an unchanged one does not.
func TestTheSignIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second, third := named(t, "first"), named(t, "second"), named(t, "third")
		from := &source{machine: second, sign: "0-7"}
		current := machine.New(machine.Config{
			Read: from.read,
			Sign: from.readSign,
			Derive: func(m *topology.Machine) (machine.Hardware, error) {
				return machine.Hardware{Machine: m}, nil
			},
			Period: time.Hour,
		}, machine.Hardware{Machine: first})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- current.Run(ctx) }()
		expect := func(m *topology.Machine) {
			t.Helper()
			time.Sleep(1100 * time.Millisecond)
			synctest.Wait()
			if got := current.Get().Machine; got != m {
				t.Errorf("the machine is %s, want %s", got.Name(), m.Name())
			}
		}
		expect(second) // it changed before Run
		from.set("0-7", third, nil)
		expect(second)
		from.set("0-6", third, errors.New("a file is just going away"))
		expect(second)
		from.set("0-6", third, nil)
		expect(third)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestAMachineThatIsDataStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := named(t, "first")
		current := machine.New(machine.Config{}, machine.Hardware{Machine: first})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		current.Reread(ctx) // returns at once
		if err := current.Run(ctx); err != nil || current.Get().Machine != first {
			t.Errorf("%v, %s", err, current.Get().Machine.Name())
		}
	})
}
