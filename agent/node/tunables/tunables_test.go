package tunables

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"k8s.io/component-helpers/node/util/sysctl"
)

// kernel has settings; those that are fixed cannot be changed.
type kernel struct {
	settings map[string]int
	fixed    string
}

func (k kernel) GetSysctl(name string) (int, error) { return k.settings[name], nil }

func (k kernel) SetSysctl(name string, value int) error {
	if name == k.fixed {
		return errors.New("read-only")
	}
	k.settings[name] = value
	return nil
}

func good() map[string]int {
	return map[string]int{
		"vm/overcommit_memory": 1, "vm/panic_on_oom": 0, "kernel/panic": 10, "kernel/panic_on_oops": 1,
		"kernel/keys/root_maxkeys": 1000000, "kernel/keys/root_maxbytes": 25000000,
	}
}

func TestCheck(t *testing.T) {
	k := kernel{settings: good()}
	if err := Check(k); err != nil {
		t.Error(err)
	}
	k.settings[sysctl.VMPanicOnOOM], k.settings[sysctl.KernelPanic] = 1, 0
	before := maps.Clone(k.settings)
	err := Check(k)
	for _, want := range []string{"vm.panic_on_oom is 1 and has to be 0",
		"kernel.panic is 0 and has to be 10"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if !maps.Equal(before, k.settings) {
		t.Errorf("it has changed them to %v", k.settings)
	}
}

func TestSet(t *testing.T) {
	k := kernel{settings: good(), fixed: sysctl.VMOvercommitMemory}
	for name := range k.settings {
		k.settings[name] = 7
	}
	err := Set(k)
	if err == nil || !strings.Contains(err.Error(), "vm.overcommit_memory is 7, should be 1") {
		t.Errorf("of what cannot be changed: %v", err)
	}
	want := good()
	want[sysctl.VMOvercommitMemory] = 7
	if !maps.Equal(k.settings, want) {
		t.Errorf("settings %v, want %v", k.settings, want)
	}
	k.fixed = ""
	if err := errors.Join(Set(k), Check(k)); err != nil {
		t.Error(err)
	}
}
